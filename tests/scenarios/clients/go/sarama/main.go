// Reads with sarama, at the protocol of Kafka 2.0 or 3.6 (client "sarama-2.0", "sarama-3.6").
package main

import (
	"context"
	"crypto/sha512"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"reader/rows"
)

func main() { rows.Exit(read()) }

func read() error {
	spec, err := rows.Read()
	if err != nil {
		return err
	}
	config, err := configOf(spec)
	if err != nil {
		return err
	}
	if len(spec.Starts) == 0 {
		return asMember(spec, config)
	}
	return assigned(spec, config)
}

func configOf(spec *rows.Spec) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	if spec.Client == "sarama-2.0" {
		config.Version = sarama.V2_0_0_0
	}
	config.Consumer.Return.Errors = true
	config.Consumer.Fetch.Default = rows.SmallFetch
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	config.ChannelBufferSize = 16
	tls, err := spec.Security.TLS()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = tls != nil, tls
	if spec.Security.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Handshake = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(spec.Security.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = spec.Security.Username, spec.Security.Password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{} }
	}
	return config, nil
}

func assigned(spec *rows.Spec, config *sarama.Config) error {
	consumer, err := sarama.NewConsumer(spec.Servers(), config)
	if err != nil {
		return err
	}
	starts, err := spec.Offsets()
	if err != nil {
		return err
	}
	printer, failed := rows.NewPrinter(spec), make(chan error, len(starts))
	for partition, at := range starts {
		if at == rows.Earliest {
			at = sarama.OffsetOldest
		}
		claim, err := consumer.ConsumePartition(spec.Topic, partition, at)
		for until := time.Now().Add(rows.Silence); err != nil && time.Now().Before(until); {
			time.Sleep(200 * time.Millisecond) // a server is away
			claim, err = consumer.ConsumePartition(spec.Topic, partition, at)
		}
		if err != nil {
			return err
		}
		go func() {
			for one := range claim.Messages() {
				if !printer.Show(one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value) {
					return
				}
			}
		}()
		go func() {
			for one := range claim.Errors() { // sarama goes on after all others
				if one.Err == sarama.ErrOffsetOutOfRange {
					failed <- one
				}
			}
		}()
	}
	select {
	case <-printer.Done:
		return nil
	case err := <-failed:
		return err
	case <-time.After(3 * rows.Silence):
		return fmt.Errorf("not all records came in time")
	}
}

type member struct{ printer *rows.Printer }

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.printer.Show(one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value)
			session.MarkMessage(one, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func asMember(spec *rows.Spec, config *sarama.Config) error {
	group, err := sarama.NewConsumerGroup(spec.Servers(), spec.Group, config)
	if err != nil {
		return err
	}
	go func() {
		for range group.Errors() {
		}
	}()
	reading := &member{printer: rows.NewPrinter(spec)}
	for {
		if err := group.Consume(context.Background(), []string{spec.Topic}, reading); err != nil {
			return err
		}
	}
}

// scramClient is what sarama leaves to its users.
type scramClient struct {
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := scram.HashGeneratorFcn(sha512.New).NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }
