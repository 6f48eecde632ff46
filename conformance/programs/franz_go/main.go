// franz-go against a node. Prints a line for each feature: its name, a tab, and "ok" or what went wrong.
//
//	franz_go BOOTSTRAP PREFIX    PREFIX begins the name of every topic and group, so that runs do not meet.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

var bootstrap, prefix string

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	play("no codec", codec("none", kgo.NoCompression()))
	play("gzip", codec("gzip", kgo.GzipCompression()))
	play("snappy", codec("snappy", kgo.SnappyCompression()))
	play("lz4", codec("lz4", kgo.Lz4Compression()))
	play("zstd", codec("zstd", kgo.ZstdCompression()))
	play("keys, headers, times", keysHeadersTimes)
	play("idempotent producer", idempotent)
	play("group of two", groupOfTwo)
	play("static member", staticMember)
	play("resume from commit", resume)
	play("new group protocol", newGroupProtocol)
	play("transactions", transactions)
	play("fenced producer", fencing)
	play("exactly once", exactlyOnce)
	play("list and describe transactions", transactionsFromOutside)
	play("create and describe topic", createAndDescribe)
	play("change settings", changeSettings)
	play("add partitions", addPartitions)
	play("delete records", deleteRecords)
	play("offsets by time", offsetsByTime)
	play("list and describe groups", listAndDescribeGroups)
	play("reset group offsets", resetGroupOffsets)
	play("delete group", deleteGroup)
	play("log directories", logDirectories)
	play("delete topic", deleteTopic)
	play("a proper no", properNo)
}

func play(feature string, scenario func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := scenario(ctx); err != nil {
		fmt.Printf("%s\t%s\n", feature, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("%s\tok\n", feature)
}

func claim(holds bool, what string, about ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf("not so: "+what, about...)
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
}

func admin() (*kadm.Client, error) {
	c, err := client()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(c), nil
}

func newTopic(ctx context.Context, name string, partitions int32) (string, error) {
	a, err := admin()
	if err != nil {
		return "", err
	}
	defer a.Close()
	topic := prefix + name
	answer, err := a.CreateTopic(ctx, partitions, 1, nil, topic)
	return topic, errors.Join(err, answer.Err)
}

func produce(ctx context.Context, topic string, from, to int, options ...kgo.Opt) error {
	c, err := client(options...)
	if err != nil {
		return err
	}
	defer c.Close()
	for number := from; number < to; number++ {
		value := []byte(fmt.Sprintf("%05d %s", number, strings.Repeat("penstock ", 20)))
		c.Produce(ctx, &kgo.Record{Topic: topic, Key: []byte(fmt.Sprint(number)), Value: value}, func(_ *kgo.Record, failed error) {
			if failed != nil {
				err = errors.Join(err, failed)
			}
		})
	}
	return errors.Join(c.Flush(ctx), err)
}

func consume(ctx context.Context, topic string, count int) ([]*kgo.Record, error) {
	c, err := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var records []*kgo.Record
	for len(records) < count {
		fetched := c.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			return records, fmt.Errorf("after %d of %d records: %w", len(records), count, err)
		}
		for _, failed := range fetched.Errors() {
			return records, failed.Err
		}
		records = append(records, fetched.Records()...)
	}
	return records, nil
}

func codec(name string, preference kgo.CompressionCodec) func(context.Context) error {
	return func(ctx context.Context) error {
		topic, err := newTopic(ctx, "codec."+name, 1)
		if err != nil {
			return err
		}
		if err := produce(ctx, topic, 0, 300, kgo.ProducerBatchCompression(preference), kgo.ProducerLinger(50*time.Millisecond)); err != nil {
			return err
		}
		records, err := consume(ctx, topic, 300)
		if err != nil {
			return err
		}
		for number, record := range records {
			if !strings.HasPrefix(string(record.Value), fmt.Sprintf("%05d ", number)) || record.Offset != int64(number) {
				return fmt.Errorf("record %d is %.20q at offset %d", number, record.Value, record.Offset)
			}
		}
		return claim(len(records) == 300, "300 records, got %d", len(records))
	}
}

func keysHeadersTimes(ctx context.Context) error {
	topic, err := newTopic(ctx, "headers", 1)
	if err != nil {
		return err
	}
	c, err := client()
	if err != nil {
		return err
	}
	defer c.Close()
	when := time.UnixMilli(1_700_000_000_123)
	record := kgo.Record{Topic: topic, Key: []byte("k"), Timestamp: when, Headers: []kgo.RecordHeader{{Key: "a", Value: []byte{0, 255}}, {Key: "a"}}}
	if err := c.ProduceSync(ctx, &record).FirstErr(); err != nil {
		return err
	}
	got, err := consume(ctx, topic, 1)
	if err != nil {
		return err
	}
	same := string(got[0].Key) == "k" && got[0].Value == nil && got[0].Timestamp.Equal(when) && len(got[0].Headers) == 2
	return claim(same && string(got[0].Headers[0].Value) == "\x00\xff", "what came back is what was sent: %v", got[0])
}

func idempotent(ctx context.Context) error {
	topic, err := newTopic(ctx, "idempotent", 1)
	if err != nil {
		return err
	}
	// Idempotence is this client's default. Small batches make many requests of it.
	if err := produce(ctx, topic, 0, 2000, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchMaxBytes(4096)); err != nil {
		return err
	}
	records, err := consume(ctx, topic, 2000)
	if err != nil {
		return err
	}
	for number, record := range records {
		if record.ProducerID < 0 || !strings.HasPrefix(string(record.Value), fmt.Sprintf("%05d ", number)) {
			return fmt.Errorf("record %d of producer %d is %.20q", number, record.ProducerID, record.Value)
		}
	}
	return nil
}

// A member of a group that counts what it owns and what it got, on a goroutine of its own.
type member struct {
	client *kgo.Client
	lock   sync.Mutex
	owned  map[int32]bool
	got    []string
	done   chan struct{}
}

func join(group, topic string, options ...kgo.Opt) (*member, error) {
	m := &member{owned: map[int32]bool{}, done: make(chan struct{})}
	gained := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.own(partitions[topic], true) }
	lost := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.own(partitions[topic], false) }
	c, err := client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	m.client = c
	go m.read()
	return m, nil
}

func (m *member) own(partitions []int32, owns bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range partitions {
		if owns {
			m.owned[partition] = true
		} else {
			delete(m.owned, partition)
		}
	}
}

func (m *member) read() {
	defer close(m.done)
	for {
		fetched := m.client.PollFetches(context.Background())
		if fetched.IsClientClosed() {
			return
		}
		m.lock.Lock()
		fetched.EachRecord(func(record *kgo.Record) { m.got = append(m.got, string(record.Value[:5])) })
		m.lock.Unlock()
	}
}

func (m *member) counts() (owned, got int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.owned), len(m.got)
}

func (m *member) leave() {
	m.client.Close()
	<-m.done
}

func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func groupOfTwo(ctx context.Context) error {
	topic, err := newTopic(ctx, "shared", 4)
	if err != nil {
		return err
	}
	group := prefix + "pair"
	first, err := join(group, topic)
	if err != nil {
		return err
	}
	defer first.leave()
	if err := until(ctx, "the first member owns all", func() bool { owned, _ := first.counts(); return owned == 4 }); err != nil {
		return err
	}
	second, err := join(group, topic)
	if err != nil {
		return err
	}
	shared := func() bool { one, _ := first.counts(); two, _ := second.counts(); return one == 2 && two == 2 }
	if err := until(ctx, "both own two partitions", shared); err != nil {
		return err
	}
	if err := produce(ctx, topic, 0, 200); err != nil {
		return err
	}
	all := func() bool { _, one := first.counts(); _, two := second.counts(); return one+two == 200 && one > 0 && two > 0 }
	if err := until(ctx, "both together got 200 records", all); err != nil {
		return err
	}
	if err := errors.Join(first.client.CommitUncommittedOffsets(ctx), second.client.CommitUncommittedOffsets(ctx)); err != nil {
		return err
	}
	second.leave()
	return until(ctx, "the first took over", func() bool { owned, _ := first.counts(); return owned == 4 })
}

func staticMember(ctx context.Context) error {
	topic, err := newTopic(ctx, "static", 2)
	if err != nil {
		return err
	}
	group := prefix + "static"
	// This client leaves no group that it is a static member of.
	for life := 0; life < 2; life++ {
		m, err := join(group, topic, kgo.InstanceID("one"))
		if err != nil {
			return err
		}
		err = until(ctx, "the static member owns all", func() bool { owned, _ := m.counts(); return owned == 2 })
		_, generation := m.client.GroupMetadata()
		m.leave()
		if err := errors.Join(err, claim(generation == 1, "generation 1 in life %d, but %d", life, generation)); err != nil {
			return err
		}
	}
	return nil
}

func resume(ctx context.Context) error {
	topic, err := newTopic(ctx, "resumed", 1)
	if err != nil {
		return err
	}
	group := prefix + "resuming"
	for round := 0; round < 2; round++ {
		if err := produce(ctx, topic, round*10, round*10+10); err != nil {
			return err
		}
		m, err := join(group, topic)
		if err != nil {
			return err
		}
		err = until(ctx, "ten more came", func() bool { _, got := m.counts(); return got >= 10 })
		err = errors.Join(err, m.client.CommitUncommittedOffsets(ctx))
		m.leave()
		if err != nil {
			return err
		}
		if err := claim(len(m.got) == 10 && m.got[0] == fmt.Sprintf("%05d", round*10), "round %d begins where the last ended: %v", round, m.got); err != nil {
			return err
		}
	}
	return nil
}
