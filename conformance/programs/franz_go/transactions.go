package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func transactional(id string) (*kgo.Client, error) {
	return client(kgo.TransactionalID(prefix+id), kgo.TransactionTimeout(30*time.Second), kgo.ProducerLinger(0))
}

// inTransaction sends the values to the topic's first partition, and ends the transaction.
func inTransaction(ctx context.Context, c *kgo.Client, topic string, end kgo.TransactionEndTry, values ...string) error {
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	for _, value := range values {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			return errors.Join(err, c.EndTransaction(ctx, kgo.TryAbort))
		}
	}
	return c.EndTransaction(ctx, end)
}

// readToLast reads a topic from its start until a value comes that ends with "last".
func readToLast(ctx context.Context, topic string, level kgo.IsolationLevel) (string, error) {
	c, err := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level))
	if err != nil {
		return "", err
	}
	defer c.Close()
	var values []string
	for {
		fetched := c.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			return "", fmt.Errorf("after %v: %w", values, err)
		}
		fetched.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
		if len(values) > 0 && strings.HasSuffix(values[len(values)-1], "last") {
			return strings.Join(values, " "), nil
		}
	}
}

func transactions(ctx context.Context) error {
	topic, err := newTopic(ctx, "transactions", 1)
	if err != nil {
		return err
	}
	c, err := transactional("writer")
	if err != nil {
		return err
	}
	defer c.Close()
	err = errors.Join(
		inTransaction(ctx, c, topic, kgo.TryCommit, "kept-1", "kept-2"),
		inTransaction(ctx, c, topic, kgo.TryAbort, "dropped-1", "dropped-2"),
		inTransaction(ctx, c, topic, kgo.TryCommit, "kept-last"),
	)
	if err != nil {
		return err
	}
	committed, err := readToLast(ctx, topic, kgo.ReadCommitted())
	if err != nil {
		return err
	}
	all, err := readToLast(ctx, topic, kgo.ReadUncommitted())
	if err != nil {
		return err
	}
	right := committed == "kept-1 kept-2 kept-last" && all == "kept-1 kept-2 dropped-1 dropped-2 kept-last"
	return claim(right, "committed: %s; all: %s", committed, all)
}

// A second client with the same id shuts the first one out, and what that had open is aborted.
func fencing(ctx context.Context) error {
	topic, err := newTopic(ctx, "fenced", 1)
	if err != nil {
		return err
	}
	first, err := transactional("twin")
	if err != nil {
		return err
	}
	defer first.Close()
	if err := first.BeginTransaction(); err != nil {
		return err
	}
	if err := first.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("of the first")}).FirstErr(); err != nil {
		return err
	}
	second, err := transactional("twin")
	if err != nil {
		return err
	}
	defer second.Close()
	if err := inTransaction(ctx, second, topic, kgo.TryCommit, "of the last"); err != nil {
		return err
	}
	told := errors.Join(
		first.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("of a zombie")}).FirstErr(),
		first.EndTransaction(ctx, kgo.TryCommit),
	)
	isFenced := errors.Is(told, kerr.ProducerFenced) || errors.Is(told, kerr.InvalidProducerEpoch) || errors.Is(told, kerr.InvalidTxnState)
	if err := claim(isFenced, "the first is told: %v", told); err != nil {
		return err
	}
	committed, err := readToLast(ctx, topic, kgo.ReadCommitted())
	return errors.Join(err, claim(committed == "of the last", "committed: %s", committed))
}

// Two sessions of one group move numbers from topic to topic; one of them leaves in the middle.
func exactlyOnce(ctx context.Context) error {
	source, err := newTopic(ctx, "moved.from", 4)
	if err != nil {
		return err
	}
	target, err := newTopic(ctx, "moved.to", 1)
	if err != nil {
		return err
	}
	if err := produce(ctx, source, 0, 400); err != nil {
		return err
	}
	for life, share := range []int{100, 400} {
		if err := move(ctx, source, target, fmt.Sprintf("mover-%d", life), share); err != nil {
			return err
		}
	}
	if err := produceTo(ctx, target, "last"); err != nil {
		return err
	}
	moved, err := readToLast(ctx, target, kgo.ReadCommitted())
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, value := range strings.Fields(moved) {
		seen[value]++
	}
	for number := 0; number < 400; number++ {
		if value := fmt.Sprintf("%05d", number); seen[value] != 1 {
			return fmt.Errorf("%s came %d times", value, seen[value])
		}
	}
	return nil
}

// move commits transactions until so many records are in the target, the first of each session aborted on purpose.
func move(ctx context.Context, source, target, id string, share int) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(prefix+id), kgo.ConsumerGroup(prefix+"movers"), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	isFirst := true
	for {
		done, err := committedOf(ctx, prefix+"movers", source)
		if err != nil || done >= int64(share) {
			return err
		}
		fetched := session.PollRecords(ctx, 40)
		if err := fetched.Err0(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetched.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value[:5]}, nil)
		})
		if _, err := session.End(ctx, kgo.TransactionEndTry(!isFirst)); err != nil {
			return err
		}
		isFirst = false
	}
}

func produceTo(ctx context.Context, topic, value string) error {
	c, err := client()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
}

// committedOf sums up how far the group has come.
func committedOf(ctx context.Context, group, topic string) (int64, error) {
	a, err := admin()
	if err != nil {
		return 0, err
	}
	defer a.Close()
	offsets, err := a.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, offset := range offsets[topic] {
		sum += max(0, offset.At)
	}
	return sum, nil
}

func transactionsFromOutside(ctx context.Context) error {
	topic, err := newTopic(ctx, "open", 1)
	if err != nil {
		return err
	}
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	c, err := transactional("open")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
		return err
	}
	id := prefix + "open"
	described, err := a.DescribeTransactions(ctx, id)
	if err != nil {
		return err
	}
	listed, err := a.ListTransactions(ctx, nil, []string{"Ongoing"})
	if err != nil {
		return err
	}
	told := described[id]
	isOpen := told.State == "Ongoing" && told.TimeoutMillis == 30_000 && told.Topics.Lookup(topic, 0) && listed[id].ProducerID == told.ProducerID
	if err := claim(isOpen, "it is open: %v %v", told, listed); err != nil {
		return err
	}
	var where kadm.TopicsSet
	where.Add(topic, 0)
	producers, err := a.DescribeProducers(ctx, where)
	if err != nil {
		return err
	}
	for _, producer := range producers[topic].Partitions[0].ActiveProducers {
		if err := claim(producer.CurrentTxnStartOffset == 0, "open since the start: %v", producer); err != nil {
			return err
		}
	}
	if err := c.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return err
	}
	return until(ctx, "it is aborted", func() bool {
		described, err := a.DescribeTransactions(ctx, id)
		return err == nil && described[id].State == "CompleteAbort"
	})
}

func newGroupProtocol(ctx context.Context) error {
	topic, err := newTopic(ctx, "next", 4)
	if err != nil {
		return err
	}
	group := prefix + "next"
	first, err := join(group, topic, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	if err != nil {
		return err
	}
	defer first.leave()
	if err := until(ctx, "the first member owns all", func() bool { owned, _ := first.counts(); return owned == 4 }); err != nil {
		return err
	}
	second, err := join(group, topic, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
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
	all := func() bool {
		_, one := first.counts()
		_, two := second.counts()
		return one+two == 200 && one > 0 && two > 0
	}
	if err := until(ctx, "both together got 200 records", all); err != nil {
		return err
	}
	if err := errors.Join(first.client.CommitUncommittedOffsets(ctx), second.client.CommitUncommittedOffsets(ctx)); err != nil {
		return err
	}
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	described, err := a.DescribeConsumerGroups(ctx, group)
	if err != nil {
		return err
	}
	told := described[group]
	if err := claim(told.Err == nil && told.Epoch > 0 && len(told.Members) == 2, "two members in an epoch: %v", told); err != nil {
		return err
	}
	second.leave()
	return until(ctx, "the first took over", func() bool { owned, _ := first.counts(); return owned == 4 })
}
