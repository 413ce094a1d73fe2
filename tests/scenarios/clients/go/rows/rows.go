// Package rows has what the readers in Go share: what they are given and what they print, which is
// that of reader.py beside this folder.
package rows

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Earliest is the start that stands for the first offset there is.
const Earliest = -2

// Silence is how long a reader waits for the next record.
const Silence = 60 * time.Second

// SmallFetch keeps a reader in the middle of its topic for a while.
const SmallFetch = 65_536

// Security says how a client proves who it is.
type Security struct {
	Protocol  string `json:"protocol"`
	Mechanism string `json:"mechanism"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	CA        string `json:"ca"`
}

// Spec is the task of a reader.
type Spec struct {
	Client    string           `json:"client"`
	Bootstrap string           `json:"bootstrap"`
	Topic     string           `json:"topic"`
	Starts    map[string]int64 `json:"starts"`
	Group     string           `json:"group"`
	Protocol  string           `json:"protocol"`
	Count     int              `json:"count"`
	Security  Security         `json:"security"`
}

// Read takes the task from the first line of the input.
func Read() (*Spec, error) {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	spec := &Spec{}
	return spec, json.Unmarshal(line, spec)
}

// Servers are the bootstrap addresses.
func (s *Spec) Servers() []string { return strings.Split(s.Bootstrap, ",") }

// Offsets are the starts by partition.
func (s *Spec) Offsets() (map[int32]int64, error) {
	found := map[int32]int64{}
	for name, at := range s.Starts {
		partition, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return nil, err
		}
		found[int32(partition)] = at
	}
	return found, nil
}

// TLS is nil where the protocol has none.
func (s *Security) TLS() (*tls.Config, error) {
	if s.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", s.CA)
	}
	return &tls.Config{RootCAs: pool}, nil
}

// Printer prints records from any number of goroutines.
type Printer struct {
	mutex sync.Mutex
	left  int
	Done  chan struct{}
}

// NewPrinter closes Done after the records of a reader that is not a member of a group.
func NewPrinter(s *Spec) *Printer {
	left := s.Count
	if len(s.Starts) == 0 {
		left = -1
	}
	return &Printer{left: left, Done: make(chan struct{})}
}

// Show prints a record; it says whether more are wanted.
func (p *Printer) Show(partition int32, offset, milliseconds int64, key, value []byte) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.left == 0 {
		return false
	}
	line, err := json.Marshal([]any{partition, offset, milliseconds, text(key), text(value)})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
	p.left--
	if p.left == 0 {
		close(p.Done)
	}
	return p.left != 0
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	return &encoded
}

// Exit ends the program; without an error with 0.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
