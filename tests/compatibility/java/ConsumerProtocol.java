// The new consumer group protocol (KIP-848) through Apache Kafka's Java clients.

import java.util.*;
import java.util.concurrent.*;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class ConsumerProtocol extends Clients {
    static void add() {
        add("shares partitions and takes over", ConsumerProtocol::sharesAndTakesOver);
        add("only what must move moves", ConsumerProtocol::onlyWhatMustMove);
        add("the range assignor", ConsumerProtocol::rangeAssignor);
        add("an assignor that is not there", ConsumerProtocol::unknownAssignor);
        add("a regular expression", ConsumerProtocol::regularExpression);
        add("a topic that grows", ConsumerProtocol::growingTopic);
        add("a subscription that changes", ConsumerProtocol::changedSubscription);
        add("static restart", ConsumerProtocol::staticRestart);
        add("second holder of an instance id", ConsumerProtocol::secondHolder);
        add("commit and resume", ConsumerProtocol::commitAndResume);
        add("a transaction with its offsets", ConsumerProtocol::transaction);
        add("described with epochs", ConsumerProtocol::described);
        add("a classic group is upgraded while it runs", ConsumerProtocol::upgrade);
        add("and downgraded again", ConsumerProtocol::downgrade);
    }

    static void create(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    static String topic(int partitions, int records) throws Exception {
        String name = unique("java-protocol");
        create(name, partitions);
        write(name, partitions, records);
        return name;
    }

    static void write(String topic, int partitions, int records) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < records; number++) producer.send(new ProducerRecord<>(topic, number % partitions, null, "v" + number));
        }
    }

    static class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final Set<TopicPartition> owned = new HashSet<>();
        final List<TopicPartition> givenUp = new ArrayList<>();
        int read = 0;

        Member(String group, Map<String, Object> more) {
            Map<String, Object> config = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "enable.auto.commit", "false", "auto.offset.reset", "earliest",
                "group.protocol", "consumer", "metadata.max.age.ms", "1000"));
            config.putAll(more);
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        }

        Member(String group, String topic, Map<String, Object> more) {
            this(group, more);
            consumer.subscribe(List.of(topic), this);
        }

        static Member classic(String group, String topic, String assignor) {
            Map<String, Object> config = Map.of(
                "group.protocol", "classic", "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor,
                "session.timeout.ms", Waiting.NEVER_MS, "heartbeat.interval.ms", 100);
            return new Member(group, topic, config);
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owned.addAll(partitions);
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned.removeAll(partitions);
            givenUp.addAll(partitions);
        }

        void poll() {
            read += consumer.poll(Waiting.ASK).count();
        }

        public void close() {
            consumer.close(CloseOptions.timeout(Waiting.PATIENCE));
        }
    }

    static void until(String what, BooleanSupplier holds, Member... members) throws Exception {
        Waiting.until(what, () -> {
            for (Member member : members) member.poll();
            return holds.getAsBoolean();
        });
    }

    static boolean own(int count, Member... members) {
        Set<TopicPartition> all = new HashSet<>();
        int sum = 0;
        for (Member member : members) {
            if (member.owned.isEmpty()) return false;
            all.addAll(member.owned);
            sum += member.owned.size();
        }
        return sum == count && all.size() == count;
    }

    static void sharesAndTakesOver() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        try (Member one = new Member(group, topic, Map.of())) {
            until("one owns everything", () -> own(6, one), one);
            try (Member two = new Member(group, topic, Map.of())) {
                until("each owns half", () -> own(6, one, two) && one.owned.size() == 3, one, two);
                write(topic, 6, 60);
                until("all of it is read", () -> one.read + two.read == 60, one, two);
                claim(one.read == 30 && two.read == 30, one.read + " and " + two.read);
            }
            until("one owns everything again", () -> own(6, one), one);
        }
    }

    static void onlyWhatMustMove() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        try (Member one = new Member(group, topic, Map.of()); Member two = new Member(group, topic, Map.of())) {
            until("each owns half", () -> own(6, one, two) && one.owned.size() == 3, one, two);
            one.givenUp.clear();
            two.givenUp.clear();
            try (Member three = new Member(group, topic, Map.of())) {
                until("each owns a third", () -> own(6, one, two, three) && one.owned.size() == 2 && two.owned.size() == 2, one, two, three);
                claim(one.givenUp.size() == 1 && two.givenUp.size() == 1, "one partition of each moves: " + one.givenUp + two.givenUp);
            }
        }
    }

    static void rangeAssignor() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        Map<String, Object> range = Map.of("group.remote.assignor", "range");
        try (Member one = new Member(group, topic, range); Member two = new Member(group, topic, range)) {
            until("each owns half", () -> own(6, one, two) && one.owned.size() == 3, one, two);
            for (Member member : List.of(one, two)) {
                List<Integer> partitions = member.owned.stream().map(TopicPartition::partition).sorted().toList();
                claim(partitions.equals(List.of(0, 1, 2)) || partitions.equals(List.of(3, 4, 5)), partitions);
            }
            claim(admin.describeConsumerGroups(List.of(group)).all().get().get(group).partitionAssignor().equals("range"), "it is told");
        }
    }

    static void unknownAssignor() throws Exception {
        String topic = topic(1, 0);
        try (Member member = new Member(unique("group"), topic, Map.of("group.remote.assignor", "fairest"))) {
            until("never", () -> false, member);
        } catch (UnsupportedAssignorException expected) {
            claim(expected.getMessage() != null, expected);
        }
    }

    static void regularExpression() throws Exception {
        String stem = unique("java-regex"), group = unique("group");
        create(stem + ".a", 2);
        create("other-" + stem, 2);
        try (Member one = new Member(group, Map.of())) {
            one.consumer.subscribe(new SubscriptionPattern(stem + "\\.[a-z]"), one);
            until("it owns the first", () -> own(2, one), one);
            create(stem + ".b", 3);
            until("and one that came later", () -> own(5, one), one);
            claim(one.owned.stream().allMatch(each -> each.topic().startsWith(stem)), one.owned);
        }
        try (Member one = new Member(group, Map.of())) {
            one.consumer.subscribe(new SubscriptionPattern("(unclosed"), one);
            until("never", () -> false, one);
        } catch (InvalidRegularExpression expected) {
            claim(expected.getMessage() != null, expected);
        }
    }

    static void growingTopic() throws Exception {
        String topic = topic(2, 0), group = unique("group");
        try (Member one = new Member(group, topic, Map.of())) {
            until("it owns two", () -> own(2, one), one);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            until("it owns five", () -> own(5, one), one);
        }
    }

    static void changedSubscription() throws Exception {
        String first = topic(2, 0), second = topic(3, 0), group = unique("group");
        try (Member one = new Member(group, first, Map.of())) {
            until("it owns the first", () -> own(2, one), one);
            one.consumer.subscribe(List.of(first, second), one);
            until("it owns both", () -> own(5, one), one);
            one.consumer.subscribe(List.of(second), one);
            until("it owns the second", () -> own(3, one), one);
        }
    }

    static void staticRestart() throws Exception {
        String topic = topic(6, 0), group = unique("group");
        try (Member one = new Member(group, topic, Map.of("group.instance.id", "one"))) {
            Member two = new Member(group, topic, Map.of("group.instance.id", "two"));
            until("each owns half", () -> own(6, one, two) && one.owned.size() == 3, one, two);
            Set<TopicPartition> had = new HashSet<>(two.owned);
            one.givenUp.clear();
            two.close();
            try (Member again = new Member(group, topic, Map.of("group.instance.id", "two"))) {
                until("it owns what it had", () -> again.owned.equals(had), one, again);
                claim(one.givenUp.isEmpty() && one.owned.size() == 3, "nobody else noticed: " + one.givenUp);
            }
        }
    }

    static void secondHolder() throws Exception {
        String topic = topic(2, 0), group = unique("group");
        try (Member first = new Member(group, topic, Map.of("group.instance.id", "the-one"))) {
            until("the first owns everything", () -> own(2, first), first);
            try (Member second = new Member(group, topic, Map.of("group.instance.id", "the-one"))) {
                until("never", () -> false, first, second);
            } catch (UnreleasedInstanceIdException expected) {
                claim(own(2, first), "the first keeps all");
            }
        }
    }

    static void commitAndResume() throws Exception {
        String topic = topic(1, 20), group = unique("group");
        TopicPartition where = new TopicPartition(topic, 0);
        try (Member one = new Member(group, topic, Map.of())) {
            until("all is read", () -> one.read == 20, one);
            one.consumer.commitSync(Map.of(where, new OffsetAndMetadata(7, Optional.of(0), "a note")));
            OffsetAndMetadata found = one.consumer.committed(Set.of(where)).get(where);
            claim(found.offset() == 7 && found.metadata().equals("a note"), found);
        }
        try (Member two = new Member(group, topic, Map.of())) {
            until("it reads on from there", () -> two.read == 13, two);
        }
        claim(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(where).offset() == 7, "the admin sees it");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        claim(admin.listGroups().all().get().stream().noneMatch(listed -> listed.groupId().equals(group)), "it can be deleted");
    }

    static void transaction() throws Exception {
        String source = topic(1, 5), target = topic(1, 0), group = unique("group");
        TopicPartition where = new TopicPartition(source, 0);
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", unique("writer"), "max.block.ms", Waiting.PATIENCE_MS);
        ConsumerGroupMetadata membership;
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            try (Member one = new Member(group, source, Map.of("isolation.level", "read_committed"))) {
                until("all is read", () -> one.read == 5, one);
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(target, "of five"));
                producer.sendOffsetsToTransaction(Map.of(where, new OffsetAndMetadata(5)), one.consumer.groupMetadata());
                producer.commitTransaction();
                membership = one.consumer.groupMetadata();
                claim(one.consumer.committed(Set.of(where)).get(where).offset() == 5, "they are committed");
            }
            producer.beginTransaction();
            try {
                producer.sendOffsetsToTransaction(Map.of(where, new OffsetAndMetadata(2)), membership);
                throw new IllegalStateException("not so: one who left is refused");
            } catch (CommitFailedException expected) {
                producer.abortTransaction();
            }
        }
        claim(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(where).offset() == 5, "they stay");
    }

    static void described() throws Exception {
        String topic = topic(2, 0), group = unique("group");
        try (Member one = new Member(group, topic, Map.of())) {
            until("it owns everything", () -> own(2, one), one);
            Waiting.until("it is stable", () -> {
                one.poll();
                return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState() == GroupState.STABLE;
            });
            ConsumerGroupDescription told = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            claim(told.type() == GroupType.CONSUMER && told.partitionAssignor().equals("uniform"), told);
            claim(told.groupEpoch().get() >= 1 && told.targetAssignmentEpoch().equals(told.groupEpoch()), told);
            MemberDescription member = told.members().iterator().next();
            claim(member.memberEpoch().equals(told.groupEpoch()) && member.assignment().topicPartitions().size() == 2, member);
            claim(member.targetAssignment().get().topicPartitions().size() == 2, member);
            var listed = admin.listGroups().all().get().stream().filter(each -> each.groupId().equals(group)).findFirst().get();
            claim(listed.type().get() == GroupType.CONSUMER && listed.protocol().equals("consumer"), listed);
        }
    }

    static void upgrade() throws Exception {
        String topic = topic(6, 60), group = unique("group");
        Member one = Member.classic(group, topic, "CooperativeStickyAssignor"), two = Member.classic(group, topic, "CooperativeStickyAssignor");
        until("each owns half", () -> own(6, one, two) && one.owned.size() == 3, one, two);
        until("all is read", () -> one.read + two.read == 60, one, two);
        one.consumer.commitSync();
        two.consumer.commitSync();
        try (Member three = new Member(group, topic, Map.of())) {
            until("three share, two of them by the old protocol", () -> own(6, one, two, three) && three.owned.size() == 2, one, two, three);
            claim(admin.describeConsumerGroups(List.of(group)).all().get().get(group).type() == GroupType.CONSUMER, "it is a new group now");
            two.close();
            one.close();
            until("the new member has it all", () -> own(6, three), three);
            write(topic, 6, 6);
            until("it reads what is new, and nothing twice", () -> three.read >= 6, three);
            claim(three.read == 6, three.read);
        }
    }

    static void downgrade() throws Exception {
        String topic = topic(4, 0), group = unique("group");
        try (Member old = Member.classic(group, topic, "RangeAssignor")) {
            until("the old one has it all", () -> own(4, old), old);
            try (Member young = new Member(group, topic, Map.of())) {
                until("they share", () -> own(4, old, young), old, young);
            }
            until("the old one has it all again", () -> own(4, old), old);
            claim(admin.describeConsumerGroups(List.of(group)).all().get().get(group).type() == GroupType.CLASSIC, "it is a classic group again");
        }
    }
}
