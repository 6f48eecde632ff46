// sarama against a node. Prints a line for each feature: its name, a tab, and "ok" or what went wrong.
//
//	sarama BOOTSTRAP PREFIX    PREFIX begins the name of every topic and group, so that runs do not meet.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const patience = 60 * time.Second

var bootstrap, prefix string
var admin sarama.ClusterAdmin

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	var err error
	if admin, err = sarama.NewClusterAdmin([]string{bootstrap}, config()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	play("no codec", func() error { return codec("none", sarama.CompressionNone) })
	play("gzip", func() error { return codec("gzip", sarama.CompressionGZIP) })
	play("snappy", func() error { return codec("snappy", sarama.CompressionSnappy) })
	play("lz4", func() error { return codec("lz4", sarama.CompressionLZ4) })
	play("zstd", func() error { return codec("zstd", sarama.CompressionZSTD) })
	play("keys, headers, times", keysHeadersTimes)
	play("idempotent producer", idempotent)
	play("group of two", groupOfTwo)
	play("static member", staticMember)
	play("resume from commit", resume)
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

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	return c
}

func play(feature string, scenario func() error) {
	ended := make(chan error, 1)
	go func() { ended <- scenario() }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(patience):
		err = errors.New("it took too long")
	}
	if err != nil {
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

func until(what string, holds func() bool) error {
	deadline := time.Now().Add(patience / 2)
	for !holds() {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain until %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func newTopic(name string, partitions int32) (string, error) {
	return prefix + name, admin.CreateTopic(prefix+name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
}

func produce(topic string, from, to int, change func(*sarama.Config)) error {
	c := config()
	if change != nil {
		change(c)
	}
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, c)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for number := from; number < to; number++ {
		value := fmt.Sprintf("%05d %s", number, strings.Repeat("penstock ", 20))
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(number)), Value: sarama.StringEncoder(value)})
	}
	return producer.SendMessages(messages)
}

func consume(topic string, count int) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var got []*sarama.ConsumerMessage
	for len(got) < count {
		select {
		case message := <-partition.Messages():
			got = append(got, message)
		case <-time.After(patience / 2):
			return got, fmt.Errorf("%d of %d records came", len(got), count)
		}
	}
	return got, nil
}

func codec(name string, compression sarama.CompressionCodec) error {
	topic, err := newTopic("codec."+name, 1)
	if err != nil {
		return err
	}
	if err := produce(topic, 0, 300, func(c *sarama.Config) { c.Producer.Compression = compression }); err != nil {
		return err
	}
	return inOrder(topic, 300)
}

func inOrder(topic string, count int) error {
	got, err := consume(topic, count)
	if err != nil {
		return err
	}
	for number, message := range got {
		if message.Offset != int64(number) || !strings.HasPrefix(string(message.Value), fmt.Sprintf("%05d ", number)) {
			return fmt.Errorf("record %d is %.20q at offset %d", number, message.Value, message.Offset)
		}
	}
	return nil
}

func keysHeadersTimes() error {
	topic, err := newTopic("headers", 1)
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config())
	if err != nil {
		return err
	}
	defer producer.Close()
	when := time.UnixMilli(1_700_000_000_123)
	headers := []sarama.RecordHeader{{Key: []byte("a"), Value: []byte{0, 255}}, {Key: []byte("a"), Value: []byte("x")}}
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Timestamp: when, Headers: headers}); err != nil {
		return err
	}
	got, err := consume(topic, 1)
	if err != nil {
		return err
	}
	same := string(got[0].Key) == "k" && len(got[0].Value) == 0 && got[0].Timestamp.Equal(when) && len(got[0].Headers) == 2
	return claim(same && string(got[0].Headers[0].Value) == "\x00\xff", "what came back is what was sent: %v", got[0])
}

func idempotent() error {
	topic, err := newTopic("idempotent", 1)
	if err != nil {
		return err
	}
	// One request in flight is all that this client allows then.
	once := func(c *sarama.Config) {
		c.Producer.Idempotent, c.Net.MaxOpenRequests, c.Producer.Flush.MaxMessages = true, 1, 50
	}
	if err := produce(topic, 0, 2000, once); err != nil {
		return err
	}
	return inOrder(topic, 2000)
}

// A member of a group that counts what it owns and what it got, on goroutines of its own.
type member struct {
	group      sarama.ConsumerGroup
	lock       sync.Mutex
	owned      int
	generation int32
	got        []string
	stop       context.CancelFunc
	done       chan struct{}
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned, m.generation = 0, s.GenerationID()
	for _, partitions := range s.Claims() {
		m.owned += len(partitions)
	}
	return nil
}

func (m *member) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for message := range c.Messages() {
		m.lock.Lock()
		m.got = append(m.got, string(message.Value[:5]))
		m.lock.Unlock()
		s.MarkMessage(message, "")
	}
	return nil
}

func (m *member) counts() (owned, got int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.owned, len(m.got)
}

func (m *member) leave() {
	m.stop()
	<-m.done
	m.group.Close()
}

func join(group, topic string, instance string) (*member, error) {
	c := config()
	c.Consumer.Group.InstanceId = instance
	joined, err := sarama.NewConsumerGroup([]string{bootstrap}, group, c)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: joined, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := joined.Consume(ctx, []string{topic}, m); err != nil {
				fmt.Fprintln(os.Stderr, err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return m, nil
}

func groupOfTwo() error {
	topic, err := newTopic("shared", 4)
	if err != nil {
		return err
	}
	first, err := join(prefix+"pair", topic, "")
	if err != nil {
		return err
	}
	defer first.leave()
	if err := until("the first member owns all", func() bool { owned, _ := first.counts(); return owned == 4 }); err != nil {
		return err
	}
	second, err := join(prefix+"pair", topic, "")
	if err != nil {
		return err
	}
	shared := func() bool { one, _ := first.counts(); two, _ := second.counts(); return one == 2 && two == 2 }
	if err := until("both own two partitions", shared); err != nil {
		return err
	}
	if err := produce(topic, 0, 200, nil); err != nil {
		return err
	}
	all := func() bool { _, one := first.counts(); _, two := second.counts(); return one+two == 200 && one > 0 && two > 0 }
	if err := until("both together got 200 records", all); err != nil {
		return err
	}
	second.leave()
	return until("the first took over", func() bool { owned, _ := first.counts(); return owned == 4 })
}

func staticMember() error {
	topic, err := newTopic("static", 2)
	if err != nil {
		return err
	}
	// This client leaves no group that it is a static member of.
	for life := 0; life < 2; life++ {
		m, err := join(prefix+"static", topic, "one")
		if err != nil {
			return err
		}
		err = until("the static member owns all", func() bool { owned, _ := m.counts(); return owned == 2 })
		m.leave()
		if err := errors.Join(err, claim(m.generation == 1, "generation 1 in life %d, but %d", life, m.generation)); err != nil {
			return err
		}
	}
	return nil
}

func resume() error {
	topic, err := newTopic("resumed", 1)
	if err != nil {
		return err
	}
	for round := 0; round < 2; round++ {
		if err := produce(topic, round*10, round*10+10, nil); err != nil {
			return err
		}
		m, err := join(prefix+"resuming", topic, "")
		if err != nil {
			return err
		}
		err = until("ten more came", func() bool { _, got := m.counts(); return got >= 10 })
		m.leave()
		if err := errors.Join(err, claim(len(m.got) == 10 && m.got[0] == fmt.Sprintf("%05d", round*10), "round %d begins where the last ended: %v", round, m.got)); err != nil {
			return err
		}
	}
	return nil
}
