// Reads one partition from its beginning with sarama at the protocol of Kafka 2.0, and prints each
// record as a line of JSON: offset, milliseconds, key and value in base64 (null where there is none).
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const silence = 30 * time.Second

func main() {
	if err := read(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(servers, topic, wanted string) error {
	count, err := strconv.Atoi(wanted)
	if err != nil {
		return err
	}
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(strings.Split(servers, ","), config)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(topic, 0, 0)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for got := 0; got < count; got++ {
		select {
		case message := <-partition.Messages():
			row := []any{message.Offset, message.Timestamp.UnixMilli(), text(message.Key), text(message.Value)}
			if err := out.Encode(row); err != nil {
				return err
			}
		case failed := <-partition.Errors():
			return failed
		case <-time.After(silence):
			return fmt.Errorf("%d of %d records, then nothing for %s", got, count, silence)
		}
	}
	return nil
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	return &encoded
}
