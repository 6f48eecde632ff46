// Share groups (KIP-932) through Apache Kafka's Java clients.

import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class ShareGroups extends Clients {
    static final int SHORT_LOCK_MS = 1_000;  // The least that Apache Kafka can be told. The node's own is long.

    static void add() {
        add("accepted by the next poll", ShareGroups::implicit);
        add("two share one partition", ShareGroups::twoShare);
        add("accept, release, reject", ShareGroups::explicit);
        add("renewed while it works", ShareGroups::renewed);
        add("lapsed and given to another", ShareGroups::lapsed);
        add("delivered so often and no more", ShareGroups::deliveryLimit);
        add("no more records than asked for", ShareGroups::recordLimit);
        add("closed and given to another", ShareGroups::closed);
        add("compressed batches", ShareGroups::compressed);
        add("listed and described", ShareGroups::described);
        add("offsets listed, altered and deleted", ShareGroups::offsets);
    }

    static String topic(int partitions, int records) throws Exception {
        String name = unique("java-shared");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        write(name, partitions, records, "none");
        return name;
    }

    static void write(String topic, int partitions, int records, String compression) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "compression.type", compression, "linger.ms", "20");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < records; number++) producer.send(new ProducerRecord<>(topic, number % partitions, null, "v" + number));
        }
    }

    /** One record to each partition. */
    static void writeValue(String topic, int partitions, String value) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int partition = 0; partition < partitions; partition++) producer.send(new ProducerRecord<>(topic, partition, null, value));
        }
    }

    /** A group that begins with the first record, with these settings besides. */
    static String group(String... configs) throws Exception {
        String name = unique("java-share");
        configure(name, "share.auto.offset.reset", "earliest");
        if (configs.length > 0) configure(name, configs);
        return name;
    }

    static void configure(String group, String... configs) throws Exception {
        List<AlterConfigOp> told = new ArrayList<>();
        for (int at = 0; at < configs.length; at += 2)
            told.add(new AlterConfigOp(new ConfigEntry(configs[at], configs[at + 1]), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), told)).all().get();
    }

    static class Worker implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;
        final List<String> values = new ArrayList<>();
        boolean isExplicit = false;

        Worker(String group, String topic, String... more) {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group));
            for (int at = 0; at < more.length; at += 2) config.put(more[at], more[at + 1]);
            consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        static Worker explicit(String group, String topic, String... more) {
            String[] all = Stream.concat(Stream.of("share.acknowledgement.mode", "explicit"), Stream.of(more)).toArray(String[]::new);
            Worker worker = new Worker(group, topic, all);
            worker.isExplicit = true;
            return worker;
        }

        List<ConsumerRecord<String, String>> poll() {
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            consumer.poll(Waiting.ASK).forEach(found::add);
            found.forEach(record -> values.add(record.value()));
            return found;
        }

        /** Of one poll that gives something. */
        List<ConsumerRecord<String, String>> some() throws Exception {
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            Waiting.until("a record comes", () -> found.addAll(poll()));
            return found;
        }

        void commit() {
            outcome().ifPresent(failure -> { throw failure; });
        }

        /** What went wrong with what was acknowledged. */
        Optional<KafkaException> outcome() {
            return consumer.commitSync(Waiting.PATIENCE).values().stream().flatMap(Optional::stream).findFirst();
        }

        /** Writes one more record to each partition, and sees that no other comes. */
        void onlyNewOnesCome(String topic, int partitions) throws Exception {
            values.clear();
            writeValue(topic, partitions, "new");
            while (values.size() < partitions)
                for (var record : some()) if (isExplicit) consumer.acknowledge(record);
            claim(values.stream().allMatch(value -> value.equals("new")), "something came again: " + values);
        }

        public void close() {
            consumer.close(Waiting.PATIENCE);
        }
    }

    static void implicit() throws Exception {
        String topic = topic(3, 300), group = group();
        try (var worker = new Worker(group, topic)) {
            while (worker.values.size() < 300) worker.some();
            claim(new HashSet<>(worker.values).size() == 300, worker.values);
            claim(worker.poll().isEmpty(), "nothing comes twice");
        }
        try (var other = new Worker(group, topic)) {
            other.onlyNewOnesCome(topic, 3);
        }
    }

    static void twoShare() throws Exception {
        String topic = topic(1, 0), group = group();
        try (var one = new Worker(group, topic); var other = new Worker(group, topic)) {
            int[] written = {0};
            Waiting.until("both have some", () -> {
                write(topic, 1, 10, "none");
                written[0] += 10;
                one.poll();
                other.poll();
                return written[0] >= 100 && !one.values.isEmpty() && !other.values.isEmpty();
            });
            Waiting.until("all come", () -> {
                one.poll();
                other.poll();
                return one.values.size() + other.values.size() >= written[0];
            });
            claim(one.values.size() + other.values.size() == written[0], one.values.size() + " and " + other.values.size());
        }
    }

    static void explicit() throws Exception {
        String topic = topic(1, 3), group = group();
        try (var worker = Worker.explicit(group, topic)) {
            var first = worker.some();
            claim(first.size() == 3, first);
            worker.consumer.acknowledge(first.get(0), AcknowledgeType.ACCEPT);
            worker.consumer.acknowledge(first.get(1), AcknowledgeType.RELEASE);
            worker.consumer.acknowledge(first.get(2), AcknowledgeType.REJECT);
            worker.commit();
            var again = worker.some();
            claim(again.size() == 1 && again.get(0).value().equals("v1"), again);
            claim(again.get(0).deliveryCount().get() == 2, again.get(0).deliveryCount());
            worker.consumer.acknowledge(again.get(0));
            worker.commit();
            worker.onlyNewOnesCome(topic, 1);
        }
    }

    /** How long a lock may have gone without renewal: each time from before a request until the answer to the next, so never too short. */
    static class Lock {
        private final long spanNs;
        private long askedAt = System.nanoTime(), longestNs = 0;

        Lock(int spanMs) {
            spanNs = spanMs * 1_000_000L;
        }

        void renewed(long askedAt) {
            longestNs = Math.max(longestNs, System.nanoTime() - this.askedAt);
            this.askedAt = askedAt;
        }

        /** Fails unless the scene was slower than the lock allows; returns that it was not kept. */
        boolean lost(Object sign) {
            renewed(askedAt);
            claim(longestNs >= spanNs, "renewed within " + longestNs / 1_000_000 + " ms, and lost: " + sign);
            return false;
        }
    }

    /** A machine may be too slow to renew a lock in time; then the same is tried with a longer one. */
    static void renewed() throws Exception {
        int lockMs = SHORT_LOCK_MS;
        while (!isRenewed(lockMs)) {
            lockMs *= 2;
            claim(lockMs < Waiting.PATIENCE_MS, "the lock is renewed");
        }
    }

    /** A record whose lock is renewed is kept, while one that was locked later, and is not renewed, goes to another. */
    static boolean isRenewed(int lockMs) throws Exception {
        // A slow machine lets "later" lapse often: it must not be given up for that before the other worker has it.
        String topic = topic(1, 1), group = group("share.record.lock.duration.ms", "" + lockMs, "share.delivery.count.limit", "10");
        try (var worker = Worker.explicit(group, topic); var idle = Worker.explicit(group, topic); var other = Worker.explicit(group, topic)) {
            var lock = new Lock(lockMs);
            var held = worker.some().get(0);
            claim(worker.consumer.acquisitionLockTimeoutMs().get() == lockMs, worker.consumer.acquisitionLockTimeoutMs());
            writeValue(topic, 1, "later");
            idle.some();
            long deadline = System.nanoTime() + Waiting.PATIENCE.toNanos();
            while (!other.values.contains("later")) {
                if (System.nanoTime() > deadline) return false;
                long askedAt = System.nanoTime();
                worker.consumer.acknowledge(held, AcknowledgeType.RENEW);
                var outcome = worker.outcome();
                if (outcome.isPresent()) return lock.lost(outcome);
                lock.renewed(askedAt);
                for (var record : worker.poll()) {
                    if (record.offset() != held.offset()) worker.consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    // A poll brings what was renewed again. A second delivery is none of those: a renewal was late, and the worker itself got it.
                    else if (record.deliveryCount().get() > 1) return lock.lost(record);
                }
                other.poll();
            }
            worker.consumer.acknowledge(held, AcknowledgeType.ACCEPT);
            var outcome = worker.outcome();
            if (outcome.isPresent()) return lock.lost(outcome);
            // Every renewal was in time: no other may have been given the record that was held.
            claim(idle.values.equals(List.of("later")) && other.values.equals(List.of("later")), idle.values + " and " + other.values);
        }
        configure(group, "share.record.lock.duration.ms", "" + Waiting.NEVER_MS);
        try (var last = Worker.explicit(group, topic)) {
            claim(last.some().get(0).value().equals("later"), "it was accepted: " + last.values);
        }
        return true;
    }

    /** A client fetches ahead, so what lapsed may come to the slow worker once more, where it lapses again because that one does not poll. */
    static void lapsed() throws Exception {
        String topic = topic(1, 1), group = group("share.record.lock.duration.ms", "" + SHORT_LOCK_MS, "share.delivery.count.limit", "10");
        try (var other = Worker.explicit(group, topic)) {
            try (var slow = Worker.explicit(group, topic)) {
                var held = slow.some().get(0);
                var taken = other.some().get(0);
                claim(taken.value().equals(held.value()) && taken.deliveryCount().get() > held.deliveryCount().get(), taken);
                slow.consumer.acknowledge(held);
                var outcome = slow.outcome();
                claim(outcome.isPresent() && outcome.get() instanceof InvalidRecordStateException, outcome);
                configure(group, "share.record.lock.duration.ms", "" + Waiting.NEVER_MS);
                other.consumer.acknowledge(taken);
            }
            // On a slow machine it may have lapsed here, too; from now on it does not.
            while (other.outcome().isPresent()) other.consumer.acknowledge(other.some().get(0));
            other.onlyNewOnesCome(topic, 1);
        }
    }

    static void deliveryLimit() throws Exception {
        String topic = topic(1, 1), group = group("share.delivery.count.limit", "3");
        try (var worker = Worker.explicit(group, topic)) {
            for (short count = 1; count <= 3; count++) {
                var found = worker.some();
                claim(found.get(0).deliveryCount().get() == count, found);
                worker.consumer.acknowledge(found.get(0), AcknowledgeType.RELEASE);
                worker.commit();
            }
            worker.onlyNewOnesCome(topic, 1);
        }
    }

    static void recordLimit() throws Exception {
        String topic = topic(1, 50), group = group();
        try (var worker = new Worker(group, topic, "max.poll.records", "7", "share.acquire.mode", "record_limit")) {
            while (worker.values.size() < 50) claim(worker.some().size() <= 7, "seven at a time");
        }
    }

    static void closed() throws Exception {
        String topic = topic(1, 2), group = group();
        try (var other = Worker.explicit(group, topic)) {
            try (var one = Worker.explicit(group, topic)) {
                var held = one.some();
                claim(held.size() == 2, held);
                one.consumer.acknowledge(held.get(0));
            }
            var rest = other.some();
            claim(rest.size() == 1 && rest.get(0).value().equals("v1"), rest);
            other.consumer.acknowledge(rest.get(0));
            other.commit();
        }
    }

    static void compressed() throws Exception {
        String topic = topic(1, 0), group = group();
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) write(topic, 1, 25, codec);
        try (var worker = new Worker(group, topic, "max.poll.records", "30")) {
            while (worker.values.size() < 100) worker.some();
            claim(worker.values.size() == 100, worker.values);
        }
    }

    /** Whether the group has one member, with so many partitions. */
    static boolean has(String group, int partitions) throws Exception {
        try {
            var members = admin.describeShareGroups(List.of(group)).all().get().get(group).members();
            return members.size() == 1 && members.iterator().next().assignment().topicPartitions().size() == partitions;
        } catch (ExecutionException notYet) {
            return false;
        }
    }

    static void described() throws Exception {
        String topic = topic(2, 0), group = group();
        try (var worker = new Worker(group, topic)) {
            Waiting.until("it has both partitions", () -> {
                worker.poll();
                return has(group, 2);
            });
            var listed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get();
            claim(listed.stream().anyMatch(each -> each.groupId().equals(group) && each.type().get() == GroupType.SHARE), listed);
            var shown = admin.describeShareGroups(List.of(group)).all().get().get(group);
            claim(shown.groupState() == GroupState.STABLE && shown.members().size() == 1, shown);
            var member = shown.members().iterator().next();
            claim(member.assignment().topicPartitions().size() == 2, member);
            try {
                admin.deleteShareGroups(List.of(group)).all().get();
                claim(false, "a group with members is deleted");
            } catch (ExecutionException refused) {
                claim(refused.getCause() instanceof GroupNotEmptyException, refused);
            }
        }
        admin.deleteShareGroups(List.of(group)).all().get();
        try {
            admin.describeShareGroups(List.of(group)).all().get();
            claim(false, "a deleted group is described");
        } catch (ExecutionException refused) {
            claim(refused.getCause() instanceof GroupIdNotFoundException, refused);
        }
    }

    static SharePartitionOffsetInfo offset(String group, TopicPartition where) throws Exception {
        var wanted = Map.of(group, new ListShareGroupOffsetsSpec());
        return admin.listShareGroupOffsets(wanted).partitionsToOffsetInfo(group).get().get(where);
    }

    static void offsets() throws Exception {
        String topic = topic(1, 10), group = group();
        var where = new TopicPartition(topic, 0);
        try (var worker = Worker.explicit(group, topic)) {
            var found = worker.some();
            for (var record : found) worker.consumer.acknowledge(record, record.offset() < 4 ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
            worker.commit();
        }
        claim(offset(group, where).lag().get() == 6, offset(group, where));
        admin.alterShareGroupOffsets(group, Map.of(where, 8L)).all().get();
        claim(offset(group, where).startOffset() == 8, offset(group, where));
        try (var worker = new Worker(group, topic)) {
            claim(worker.some().get(0).offset() == 8, worker.values);
        }
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
        claim(offset(group, where) == null, offset(group, where));
    }
}
