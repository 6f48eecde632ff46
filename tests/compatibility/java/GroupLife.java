// Consumer groups through Apache Kafka's Java clients.

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class GroupLife extends Clients {
    static void add() {
        add("shares partitions and takes over", GroupLife::sharesAndTakesOver);
        add("cooperative moves only what must move", GroupLife::cooperative);
        add("static restart without rebalance", GroupLife::staticRestart);
        add("second holder fences the first", GroupLife::fenced);
        add("commit, fetch, seek", GroupLife::offsets);
        add("admin", GroupLife::admin);
    }

    static String topic(int partitions, int records) throws Exception {
        String name = unique("java-groups");
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(config)) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        }
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (int number = 0; number < records; number++) producer.send(new ProducerRecord<>(name, number % partitions, null, "v" + number));
        }
        return name;
    }

    static class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final Set<Integer> owned = new HashSet<>();
        final List<Integer> givenUp = new ArrayList<>();
        int read = 0;

        Member(String group, String topic, String assignor, String instance) {
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", group);
            config.put("enable.auto.commit", "false");
            config.put("auto.offset.reset", "earliest");
            config.put("session.timeout.ms", Waiting.NEVER_MS);
            config.put("heartbeat.interval.ms", 100);
            config.put("key.deserializer", StringDeserializer.class.getName());
            config.put("value.deserializer", StringDeserializer.class.getName());
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
            if (instance != null) config.put("group.instance.id", instance);
            consumer = new KafkaConsumer<>(config);
            consumer.subscribe(List.of(topic), this);
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition one : partitions) owned.add(one.partition());
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition one : partitions) {
                owned.remove(one.partition());
                givenUp.add(one.partition());
            }
        }

        void poll() {
            read += consumer.poll(Waiting.ASK).count();
        }

        public void close() {
            consumer.close(Waiting.PATIENCE);
        }
    }

    static void until(String what, BooleanSupplier holds, Member... members) throws Exception {
        Waiting.until(what, () -> {
            for (Member member : members) member.poll();
            return holds.getAsBoolean();
        });
    }

    static void sharesAndTakesOver() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        try (Member one = new Member(group, topic, "RangeAssignor", null)) {
            until("one owns everything", () -> one.owned.size() == 6, one);
            try (Member two = new Member(group, topic, "RangeAssignor", null)) {
                until("each owns half", () -> one.owned.size() == 3 && two.owned.size() == 3, one, two);
            }
            until("one owns everything again", () -> one.owned.size() == 6, one);
        }
    }

    static void cooperative() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        try (Member one = new Member(group, topic, "CooperativeStickyAssignor", null);
                Member two = new Member(group, topic, "CooperativeStickyAssignor", null)) {
            until("each owns half", () -> one.owned.size() == 3 && two.owned.size() == 3, one, two);
            one.givenUp.clear();
            two.givenUp.clear();
            try (Member three = new Member(group, topic, "CooperativeStickyAssignor", null)) {
                until("each owns a third", () -> one.owned.size() == 2 && two.owned.size() == 2 && three.owned.size() == 2, one, two, three);
                claim(one.givenUp.size() == 1 && two.givenUp.size() == 1, "one partition moves: " + one.givenUp + two.givenUp);
            }
        }
    }

    static void staticRestart() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        try (Member one = new Member(group, topic, "RangeAssignor", "one")) {
            Set<Integer> had;
            try (Member two = new Member(group, topic, "RangeAssignor", "two")) {
                until("each owns half", () -> one.owned.size() == 3 && two.owned.size() == 3, one, two);
                had = new HashSet<>(two.owned);
                one.givenUp.clear();
                int generation = one.consumer.groupMetadata().generationId();
                two.consumer.close(Waiting.PATIENCE);
                try (Member again = new Member(group, topic, "RangeAssignor", "two")) {
                    until("it owns what it had", () -> again.owned.equals(had), one, again);
                    claim(one.givenUp.isEmpty(), "nobody else noticed");
                    claim(one.consumer.groupMetadata().generationId() == generation, "the generation stays");
                }
            }
        }
    }

    static void fenced() throws Exception {
        String topic = topic(2, 0), group = unique("group");
        try (Member first = new Member(group, topic, "RangeAssignor", "the-one")) {
            until("the first owns everything", () -> first.owned.size() == 2, first);
            try (Member second = new Member(group, topic, "RangeAssignor", "the-one")) {
                until("the second owns everything", () -> second.owned.size() == 2, second);
                try {
                    until("the first is told", () -> false, first);
                } catch (FencedInstanceIdException expected) {
                    second.poll();
                }
            }
        }
    }

    static void offsets() throws Exception {
        String topic = topic(1, 20), group = unique("group");
        TopicPartition where = new TopicPartition(topic, 0);
        try (Member one = new Member(group, topic, "RangeAssignor", null)) {
            until("all is read", () -> one.read == 20, one);
            one.consumer.commitSync(Map.of(where, new OffsetAndMetadata(7, Optional.of(0), "a note")));
            OffsetAndMetadata found = one.consumer.committed(Set.of(where)).get(where);
            claim(found.offset() == 7 && found.metadata().equals("a note"), "what was committed is found: " + found);
        }
        try (Member two = new Member(group, topic, "RangeAssignor", null)) {
            until("it reads on from there", () -> two.read == 13, two);
            two.consumer.seek(where, 18);
            int before = two.read;
            until("it reads from where it sought", () -> two.read == before + 2, two);
        }
    }

    static void admin() throws Exception {
        String topic = topic(2, 4), group = unique("group");
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(config)) {
            TopicPartition where = new TopicPartition(topic, 0);
            try (Member one = new Member(group, topic, "RangeAssignor", "static-one")) {
                until("all is read", () -> one.read == 4, one);
                one.consumer.commitSync();
                var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                claim(described.groupState() == GroupState.STABLE, "it is stable: " + described);
                claim(described.members().iterator().next().assignment().topicPartitions().size() == 2, "it has both partitions");
                claim(admin.listGroups().all().get().stream().anyMatch(listed -> listed.groupId().equals(group)), "it is listed");
            }
            admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("static-one")))).all().get();
            var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            claim(offsets.get(where).offset() == 2, "its offsets are told: " + offsets);
            admin.alterConsumerGroupOffsets(group, Map.of(where, new OffsetAndMetadata(1))).all().get();
            claim(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(where).offset() == 1, "they can be moved");
            admin.deleteConsumerGroupOffsets(group, Set.of(where)).all().get();
            claim(!admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().containsKey(where), "they can be deleted");
            admin.deleteConsumerGroups(List.of(group)).all().get();
            claim(admin.listGroups().all().get().stream().noneMatch(listed -> listed.groupId().equals(group)), "it is gone");
        }
    }
}
