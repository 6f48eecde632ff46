package main

import (
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

func createAndDescribe() error {
	week := "604800000"
	topic := prefix + "described"
	detail := sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &week}}
	if err := admin.CreateTopic(topic, &detail, false); err != nil {
		return err
	}
	described, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	listed, err := admin.ListTopics()
	if err != nil {
		return err
	}
	there := listed[topic]
	kept := there.ConfigEntries["retention.ms"]
	if err := claim(there.NumPartitions == 3 && kept != nil && *kept == week, "it is listed with its setting: %v", there); err != nil {
		return err
	}
	brokers, _, err := admin.DescribeCluster()
	return errors.Join(err, claim(len(described[0].Partitions) == 3 && len(brokers) == 1, "three partitions on one node: %v", described))
}

func changeSettings() error {
	topic, err := newTopic("settings", 1)
	if err != nil {
		return err
	}
	hour, day := "3600000", "86400000"
	set := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour}}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false); err != nil {
		return err
	}
	if err := setTo(topic, hour); err != nil {
		return err
	}
	if err := admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &day}, false); err != nil {
		return err
	}
	return setTo(topic, day)
}

func setTo(topic, value string) error {
	told, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	if err != nil {
		return err
	}
	return claim(len(told) == 1 && told[0].Value == value, "it has the new value: %v", told)
}

func addPartitions() error {
	topic, err := newTopic("widened", 1)
	if err != nil {
		return err
	}
	if err := admin.CreatePartitions(topic, 4, nil, false); err != nil {
		return err
	}
	described, err := admin.DescribeTopics([]string{topic})
	return errors.Join(err, claim(len(described[0].Partitions) == 4, "four partitions"))
}

func deleteRecords() error {
	topic, err := newTopic("trimmed", 1)
	if err != nil {
		return err
	}
	if err := produce(topic, 0, 10, nil); err != nil {
		return err
	}
	if err := admin.DeleteRecords(topic, map[int32]int64{0: 4}); err != nil {
		return err
	}
	return offsetAt(topic, sarama.OffsetOldest, 4)
}

func offsetAt(topic string, when, wanted int64) error {
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return err
	}
	defer client.Close()
	offset, err := client.GetOffset(topic, 0, when)
	return errors.Join(err, claim(offset == wanted, "%d at %d: %d", wanted, when, offset))
}

func offsetsByTime() error {
	topic, err := newTopic("timed", 1)
	if err != nil {
		return err
	}
	if err := produce(topic, 0, 5, nil); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	between := time.Now().UnixMilli()
	time.Sleep(50 * time.Millisecond)
	if err := produce(topic, 5, 10, nil); err != nil {
		return err
	}
	return errors.Join(offsetAt(topic, between, 5), offsetAt(topic, sarama.OffsetNewest, 10), offsetAt(topic, sarama.OffsetOldest, 0))
}

func listAndDescribeGroups() error {
	topic, err := newTopic("watched", 2)
	if err != nil {
		return err
	}
	group := prefix + "watched"
	m, err := join(group, topic, "")
	if err != nil {
		return err
	}
	defer m.leave()
	if err := until("the member owns all", func() bool { owned, _ := m.counts(); return owned == 2 }); err != nil {
		return err
	}
	listed, err := admin.ListConsumerGroups()
	if err != nil {
		return err
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return err
	}
	return claim(listed[group] == "consumer" && described[0].State == "Stable" && len(described[0].Members) == 1, "it is stable: %v %v", listed, described[0])
}

// Leaves a group with committed offsets and no members: ten of ten.
func committedGroup(name string) (group, topic string, err error) {
	if topic, err = newTopic(name, 1); err != nil {
		return
	}
	if err = produce(topic, 0, 10, nil); err != nil {
		return
	}
	group = prefix + name
	m, err := join(group, topic, "")
	if err != nil {
		return
	}
	err = until("ten came", func() bool { _, got := m.counts(); return got == 10 })
	m.leave()
	return
}

func committed(group, topic string) (int64, error) {
	told, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	if err != nil {
		return 0, err
	}
	return told.GetBlock(topic, 0).Offset, nil
}

func resetGroupOffsets() error {
	group, topic, err := committedGroup("reset")
	if err != nil {
		return err
	}
	if at, err := committed(group, topic); err != nil || at != 10 {
		return errors.Join(err, claim(at == 10, "it is at 10: %d", at))
	}
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		return err
	}
	partition, err := manager.ManagePartition(topic, 0)
	if err != nil {
		return err
	}
	partition.ResetOffset(3, "by hand")
	manager.Commit()
	partition.AsyncClose() // Close waits for the manager's own commits, which are switched off here.
	if err := manager.Close(); err != nil {
		return err
	}
	if at, err := committed(group, topic); err != nil || at != 3 {
		return errors.Join(err, claim(at == 3, "it is at 3: %d", at))
	}
	if err := admin.DeleteConsumerGroupOffset(group, topic, 0); err != nil {
		return err
	}
	at, err := committed(group, topic)
	return errors.Join(err, claim(at == -1, "a deleted offset is gone: %d", at))
}

func deleteGroup() error {
	group, _, err := committedGroup("deleted")
	if err != nil {
		return err
	}
	if err := admin.DeleteConsumerGroup(group); err != nil {
		return err
	}
	listed, err := admin.ListConsumerGroups()
	_, there := listed[group]
	return errors.Join(err, claim(!there, "it is listed no more"))
}

func logDirectories() error {
	topic, err := newTopic("sized", 1)
	if err != nil {
		return err
	}
	if err := produce(topic, 0, 10, nil); err != nil {
		return err
	}
	told, err := admin.DescribeLogDirs([]int32{1})
	if err != nil {
		return err
	}
	for _, of := range told[1][0].Topics {
		if of.Topic == topic {
			return claim(of.Partitions[0].Size > 0, "it has a size: %v", of)
		}
	}
	return errors.New("the topic is not among those on the disk")
}

func deleteTopic() error {
	topic, err := newTopic("gone", 1)
	if err != nil {
		return err
	}
	if err := admin.DeleteTopic(topic); err != nil {
		return err
	}
	listed, err := admin.ListTopics()
	_, there := listed[topic]
	return errors.Join(err, claim(!there, "it is listed no more"))
}

func properNo() error {
	if _, err := newTopic("twice", 1); err != nil {
		return err
	}
	crooked := "banana"
	refusals := []error{
		admin.CreateTopic(prefix+"twice", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false),
		admin.DeleteTopic(prefix + "never-made"),
		admin.CreateTopic(prefix+"crooked", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &crooked}}, false),
		admin.CreateTopic(prefix+"thrice", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, false),
		admin.DeleteConsumerGroup(prefix + "never-joined"),
	}
	wanted := []error{sarama.ErrTopicAlreadyExists, sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidConfig, sarama.ErrInvalidReplicationFactor, sarama.ErrGroupIDNotFound}
	return claim(slices.EqualFunc(refusals, wanted, errors.Is), "the right code each: %v", refusals)
}
