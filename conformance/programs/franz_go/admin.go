package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func createAndDescribe(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic := prefix + "described"
	week := "604800000"
	if _, err := a.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &week}, topic); err != nil {
		return err
	}
	topics, err := a.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	brokers, err := a.ListBrokers(ctx)
	if err != nil {
		return err
	}
	told := topics[topic]
	return claim(told.Err == nil && len(told.Partitions) == 3 && len(brokers) == 1 && told.Partitions[0].Leader == brokers[0].NodeID, "three partitions on one node: %v", told)
}

func changeSettings(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "settings", 1)
	if err != nil {
		return err
	}
	value := "3600000"
	changed, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, topic)
	if err != nil {
		return err
	}
	for _, answer := range changed {
		if answer.Err != nil {
			return fmt.Errorf("%w %s", answer.Err, answer.ErrMessage)
		}
	}
	told, err := a.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	ofNode, err := a.DescribeBrokerConfigs(ctx, 1)
	if err != nil {
		return err
	}
	for _, config := range told[0].Configs {
		if config.Key == "retention.ms" {
			return claim(config.MaybeValue() == value && len(ofNode[0].Configs) > 0, "it has the new value: %v", config.MaybeValue())
		}
	}
	return errors.New("retention.ms is not among the settings")
}

func addPartitions(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "widened", 1)
	if err != nil {
		return err
	}
	answers, err := a.UpdatePartitions(ctx, 4, topic)
	if err != nil || answers.Error() != nil {
		return errors.Join(err, answers.Error())
	}
	topics, err := a.ListTopics(ctx, topic)
	return errors.Join(err, claim(len(topics[topic].Partitions) == 4, "four partitions"))
}

func deleteRecords(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "trimmed", 1)
	if err != nil {
		return err
	}
	if err := produce(ctx, topic, 0, 10); err != nil {
		return err
	}
	upTo := kadm.Offsets{}
	upTo.AddOffset(topic, 0, 4, -1)
	answers, err := a.DeleteRecords(ctx, upTo)
	if err != nil || answers.Error() != nil {
		return errors.Join(err, answers.Error())
	}
	starts, err := a.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	start, _ := starts.Lookup(topic, 0)
	return claim(start.Offset == 4, "the log starts at 4: %v", start)
}

func offsetsByTime(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "timed", 1)
	if err != nil {
		return err
	}
	if err := produce(ctx, topic, 0, 5); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	between := time.Now()
	time.Sleep(50 * time.Millisecond)
	if err := produce(ctx, topic, 5, 10); err != nil {
		return err
	}
	after, err := a.ListOffsetsAfterMilli(ctx, between.UnixMilli(), topic)
	if err != nil {
		return err
	}
	latest, err := a.ListMaxTimestampOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := a.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	one, _ := after.Lookup(topic, 0)
	two, _ := latest.Lookup(topic, 0)
	three, _ := ends.Lookup(topic, 0)
	return claim(one.Offset == 5 && two.Offset >= 5 && three.Offset == 10, "5, the newest, 10: %v %v %v", one, two, three)
}

// Leaves a group with committed offsets and no members: offset 3 of 10.
func committedGroup(ctx context.Context, a *kadm.Client, name string) (group, topic string, err error) {
	if topic, err = newTopic(ctx, name, 1); err != nil {
		return
	}
	if err = produce(ctx, topic, 0, 10); err != nil {
		return
	}
	group = prefix + name
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 3, LeaderEpoch: -1, Metadata: "by hand"})
	err = a.CommitAllOffsets(ctx, group, offsets)
	return
}

func listAndDescribeGroups(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "watched", 2)
	if err != nil {
		return err
	}
	group := prefix + "watched"
	m, err := join(group, topic)
	if err != nil {
		return err
	}
	defer m.leave()
	if err := until(ctx, "the member owns all", func() bool { owned, _ := m.counts(); return owned == 2 }); err != nil {
		return err
	}
	listed, err := a.ListGroups(ctx)
	if err != nil {
		return err
	}
	stable, err := a.ListGroups(ctx, "Stable")
	if err != nil {
		return err
	}
	described, err := a.DescribeGroups(ctx, group)
	if err != nil || described.Error() != nil {
		return errors.Join(err, described.Error())
	}
	told := described[group]
	if err := claim(told.State == "Stable" && len(told.Members) == 1 && told.AssignedPartitions().Lookup(topic, 1), "one member has both partitions: %v", told); err != nil {
		return err
	}
	_, there := listed[group]
	_, steady := stable[group]
	return claim(there && steady, "it is listed: %v, %v", listed.Groups(), stable.Groups())
}

func resetGroupOffsets(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	group, topic, err := committedGroup(ctx, a, "reset")
	if err != nil {
		return err
	}
	lags, err := a.Lag(ctx, group)
	if err != nil || lags.Error() != nil {
		return errors.Join(err, lags.Error())
	}
	lag, _ := lags[group].Lag.Lookup(topic, 0)
	if err := claim(lag.Lag == 7 && lag.Commit.Metadata == "by hand", "lag is 7: %v", lag); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 0, -1)
	if err := a.CommitAllOffsets(ctx, group, offsets); err != nil {
		return err
	}
	told, err := a.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	now, there := told.Lookup(topic, 0)
	if err := claim(there && now.At == 0, "it is back at 0: %v", now); err != nil {
		return err
	}
	gone := kadm.TopicsSet{}
	gone.Add(topic, 0)
	if answers, err := a.DeleteOffsets(ctx, group, gone); err != nil || answers.Error() != nil {
		return errors.Join(err, answers.Error())
	}
	told, err = a.FetchOffsets(ctx, group)
	_, there = told.Lookup(topic, 0)
	return errors.Join(err, claim(!there, "a deleted offset is gone: %v", told))
}

func deleteGroup(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	group, _, err := committedGroup(ctx, a, "deleted")
	if err != nil {
		return err
	}
	if answer, err := a.DeleteGroup(ctx, group); err != nil || answer.Err != nil {
		return errors.Join(err, answer.Err)
	}
	listed, err := a.ListGroups(ctx)
	_, there := listed[group]
	return errors.Join(err, claim(!there, "it is listed no more"))
}

func logDirectories(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "sized", 1)
	if err != nil {
		return err
	}
	if err := produce(ctx, topic, 0, 10); err != nil {
		return err
	}
	which := kadm.TopicsSet{}
	which.Add(topic, 0)
	told, err := a.DescribeAllLogDirs(ctx, which)
	if err != nil {
		return err
	}
	size := int64(-1)
	told.Each(func(directory kadm.DescribedLogDir) { size = directory.Topics[topic][0].Size })
	return claim(size > 0, "it has a size: %d", size)
}

func deleteTopic(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "gone", 1)
	if err != nil {
		return err
	}
	if answer, err := a.DeleteTopic(ctx, topic); err != nil || answer.Err != nil {
		return errors.Join(err, answer.Err)
	}
	topics, err := a.ListTopics(ctx)
	return errors.Join(err, claim(!topics.Has(topic), "it is listed no more"))
}

func properNo(ctx context.Context) error {
	a, err := admin()
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := newTopic(ctx, "twice", 1)
	if err != nil {
		return err
	}
	again, _ := a.CreateTopic(ctx, 1, 1, nil, topic)
	nowhere, _ := a.DeleteTopic(ctx, prefix+"never-made")
	crooked := "banana"
	wrong, _ := a.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &crooked}, prefix+"crooked")
	alone, _ := a.CreateTopic(ctx, 1, 3, nil, prefix+"thrice")
	return claim(errors.Is(again.Err, kerr.TopicAlreadyExists) && errors.Is(nowhere.Err, kerr.UnknownTopicOrPartition) &&
		errors.Is(wrong.Err, kerr.InvalidConfig) && errors.Is(alone.Err, kerr.InvalidReplicationFactor),
		"the right code each: %v, %v, %v, %v", again.Err, nowhere.Err, wrong.Err, alone.Err)
}
