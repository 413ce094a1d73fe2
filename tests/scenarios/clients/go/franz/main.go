// Reads with franz-go.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"reader/rows"
)

func main() { rows.Exit(read()) }

func read() error {
	spec, err := rows.Read()
	if err != nil {
		return err
	}
	options, err := optionsOf(spec)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	printer := rows.NewPrinter(spec)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), rows.Silence)
		fetches := client.PollRecords(ctx, 100)
		cancel()
		if ctx.Err() == context.DeadlineExceeded && fetches.NumRecords() == 0 {
			return fmt.Errorf("nothing came for %s", rows.Silence)
		}
		for iterator := fetches.RecordIter(); !iterator.Done(); {
			one := iterator.Next()
			printer.Show(one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value)
		}
		select {
		case <-printer.Done:
			return nil
		default:
		}
	}
}

func optionsOf(spec *rows.Spec) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(spec.Servers()...),
		kgo.FetchMaxPartitionBytes(rows.SmallFetch),
		kgo.MaxBufferedRecords(200),
	}
	tls, err := spec.Security.TLS()
	if err != nil {
		return nil, err
	}
	if tls != nil {
		options = append(options, kgo.DialTLSConfig(tls))
	}
	if spec.Security.Mechanism != "" {
		login := scram.Auth{User: spec.Security.Username, Pass: spec.Security.Password}
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	if len(spec.Starts) == 0 {
		return append(options,
			kgo.ConsumerGroup(spec.Group),
			kgo.ConsumeTopics(spec.Topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.AutoCommitInterval(500*time.Millisecond),
		), nil
	}
	starts, err := spec.Offsets()
	if err != nil {
		return nil, err
	}
	at := map[int32]kgo.Offset{}
	for partition, offset := range starts {
		at[partition] = kgo.NewOffset().At(offset)
		if offset == rows.Earliest {
			at[partition] = kgo.NewOffset().AtStart()
		}
	}
	return append(options,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{spec.Topic: at}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	), nil
}
