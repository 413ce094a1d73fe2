// Reads with segmentio's kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/scram"

	"reader/rows"
)

func main() { rows.Exit(read()) }

func read() error {
	spec, err := rows.Read()
	if err != nil {
		return err
	}
	dialer, err := dialerOf(spec)
	if err != nil {
		return err
	}
	config := kafka.ReaderConfig{
		Brokers:     spec.Servers(),
		Topic:       spec.Topic,
		Dialer:      dialer,
		MaxBytes:    rows.SmallFetch,
		MinBytes:    1,
		MaxWait:     500 * time.Millisecond,
		StartOffset: kafka.FirstOffset,
	}
	printer := rows.NewPrinter(spec)
	if len(spec.Starts) == 0 {
		config.GroupID = spec.Group
		config.CommitInterval = 500 * time.Millisecond
		return readOn(kafka.NewReader(config), printer)
	}
	starts, err := spec.Offsets()
	if err != nil {
		return err
	}
	failed := make(chan error, len(starts))
	for partition, at := range starts {
		config.Partition = int(partition)
		reader := kafka.NewReader(config)
		if at == rows.Earliest {
			at = kafka.FirstOffset
		}
		if err := reader.SetOffset(at); err != nil {
			return err
		}
		go func() { failed <- readOn(reader, printer) }()
	}
	for {
		select {
		case <-printer.Done:
			return nil
		case err := <-failed:
			select {
			case <-printer.Done:
				return nil
			default:
				return err
			}
		}
	}
}

func readOn(reader *kafka.Reader, printer *rows.Printer) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*rows.Silence)
		one, err := reader.ReadMessage(ctx)
		cancel()
		select {
		case <-printer.Done:
			return nil
		default:
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kafka.OffsetOutOfRange) {
			return fmt.Errorf("reading: %w", err)
		}
		if err != nil { // a server is away: the reader goes on where it was
			time.Sleep(200 * time.Millisecond)
			continue
		}
		if !printer.Show(int32(one.Partition), one.Offset, one.Time.UnixMilli(), one.Key, one.Value) {
			return nil
		}
	}
}

func dialerOf(spec *rows.Spec) (*kafka.Dialer, error) {
	dialer := &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true}
	tls, err := spec.Security.TLS()
	if err != nil {
		return nil, err
	}
	dialer.TLS = tls
	if spec.Security.Mechanism != "" {
		mechanism, err := scram.Mechanism(scram.SHA512, spec.Security.Username, spec.Security.Password)
		if err != nil {
			return nil, err
		}
		dialer.SASLMechanism = mechanism
	}
	return dialer, nil
}
