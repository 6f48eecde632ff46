// Share groups (KIP-932) through Apache Kafka's Java clients. Usage: ShareGroups HOST:PORT

import java.time.Duration;
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

public class ShareGroups extends Scenes {
    public static void main(String[] arguments) throws Exception {
        begin(arguments[0]);
        scene("accepted by the next poll", ShareGroups::implicit);
        scene("two share one partition", ShareGroups::twoShare);
        scene("accept, release, reject", ShareGroups::explicit);
        scene("renewed while it works", ShareGroups::renewed);
        scene("lapsed and given to another", ShareGroups::lapsed);
        scene("delivered so often and no more", ShareGroups::deliveryLimit);
        scene("no more records than asked for", ShareGroups::recordLimit);
        scene("closed and given to another", ShareGroups::closed);
        scene("compressed batches", ShareGroups::compressed);
        scene("listed and described", ShareGroups::described);
        scene("offsets listed, altered and deleted", ShareGroups::offsets);
        playAll(3);
    }

    static String topic(int partitions, int records) throws Exception {
        String name = unique("java-shared");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get(30, TimeUnit.SECONDS);
        write(name, partitions, records, "none");
        return name;
    }

    static void write(String topic, int partitions, int records, String compression) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "compression.type", compression, "linger.ms", "20");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < records; number++) producer.send(new ProducerRecord<>(topic, number % partitions, null, "v" + number));
        }
    }

    static String group(String... configs) throws Exception {
        String name = unique("java-share");
        List<AlterConfigOp> told = new ArrayList<>();
        told.add(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
        for (int at = 0; at < configs.length; at += 2)
            told.add(new AlterConfigOp(new ConfigEntry(configs[at], configs[at + 1]), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, name), told)).all().get(30, TimeUnit.SECONDS);
        return name;
    }

    static class Worker implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;
        final List<String> values = new ArrayList<>();

        Worker(String group, String topic, String... more) {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group));
            for (int at = 0; at < more.length; at += 2) config.put(more[at], more[at + 1]);
            consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        static Worker explicit(String group, String topic, String... more) {
            String[] all = Stream.concat(Stream.of("share.acknowledgement.mode", "explicit"), Stream.of(more)).toArray(String[]::new);
            return new Worker(group, topic, all);
        }

        List<ConsumerRecord<String, String>> poll(long ms) {
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            consumer.poll(Duration.ofMillis(ms)).forEach(found::add);
            found.forEach(record -> values.add(record.value()));
            return found;
        }

        /** Of one poll that gives something. */
        List<ConsumerRecord<String, String>> some() {
            long deadline = System.nanoTime() + 15_000_000_000L;
            while (System.nanoTime() < deadline) {
                var found = poll(500);
                if (!found.isEmpty()) return found;
            }
            throw new IllegalStateException("no record came");
        }

        void commit() {
            consumer.commitSync(Duration.ofSeconds(10)).forEach((where, failure) -> {
                if (failure.isPresent()) throw failure.get();
            });
        }

        public void close() {
            consumer.close(Duration.ofSeconds(5));
        }
    }

    static void implicit() throws Exception {
        String topic = topic(3, 300), group = group();
        try (var worker = new Worker(group, topic)) {
            while (worker.values.size() < 300) worker.some();
            claim(new HashSet<>(worker.values).size() == 300, worker.values);
            claim(worker.poll(300).isEmpty(), "nothing comes twice");
        }
        try (var other = new Worker(group, topic)) {
            claim(other.poll(1500).isEmpty(), "all was accepted: " + other.values);
        }
    }

    static void twoShare() throws Exception {
        String topic = topic(1, 0), group = group();
        try (var one = new Worker(group, topic); var other = new Worker(group, topic)) {
            one.poll(300);
            other.poll(300);
            for (int round = 0; round < 10; round++) {
                write(topic, 1, 10, "none");
                one.poll(50);
                other.poll(50);
            }
            long deadline = System.nanoTime() + 15_000_000_000L;
            while (one.values.size() + other.values.size() < 100 && System.nanoTime() < deadline) {
                one.poll(50);
                other.poll(50);
            }
            claim(one.values.size() + other.values.size() == 100, one.values.size() + " and " + other.values.size());
            claim(!one.values.isEmpty() && !other.values.isEmpty(), "both have some");
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
            claim(worker.poll(500).isEmpty(), "all is settled");
        }
    }

    static void renewed() throws Exception {
        String topic = topic(1, 1), group = group();
        try (var worker = Worker.explicit(group, topic); var other = Worker.explicit(group, topic)) {
            var held = worker.some();
            claim(worker.consumer.acquisitionLockTimeoutMs().get() == 1500, worker.consumer.acquisitionLockTimeoutMs());
            for (int round = 0; round < 4; round++) {
                claim(other.poll(700).isEmpty(), "the lock is renewed");
                worker.consumer.acknowledge(held.get(0), AcknowledgeType.RENEW);
                worker.commit();
                worker.poll(100);
            }
            worker.consumer.acknowledge(held.get(0), AcknowledgeType.ACCEPT);
            worker.commit();
            claim(other.poll(2000).isEmpty(), "it was accepted");
        }
    }

    static void lapsed() throws Exception {
        String topic = topic(1, 1), group = group();
        try (var slow = Worker.explicit(group, topic); var other = Worker.explicit(group, topic)) {
            var held = slow.some();
            var taken = other.some();
            claim(taken.get(0).deliveryCount().get() == 2, taken);
            slow.consumer.acknowledge(held.get(0));
            var outcome = slow.consumer.commitSync(Duration.ofSeconds(10)).values().iterator().next();
            claim(outcome.isPresent() && outcome.get() instanceof InvalidRecordStateException, outcome);
            other.consumer.acknowledge(taken.get(0));
            other.commit();
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
            claim(worker.poll(700).isEmpty(), "it is given up");
        }
    }

    static void recordLimit() throws Exception {
        String topic = topic(1, 50), group = group();
        try (var worker = new Worker(group, topic, "max.poll.records", "7", "share.acquire.mode", "record_limit")) {
            while (worker.values.size() < 50) claim(worker.some().size() <= 7, "seven at a time");
        }
    }

    static void closed() throws Exception {
        String topic = topic(1, 2), group = group("share.record.lock.duration.ms", "60000");
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
            var members = admin.describeShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group).members();
            return members.size() == 1 && members.iterator().next().assignment().topicPartitions().size() == partitions;
        } catch (ExecutionException notYet) {
            return false;
        }
    }

    static void described() throws Exception {
        String topic = topic(2, 0), group = group();
        try (var worker = new Worker(group, topic)) {
            long deadline = System.nanoTime() + 15_000_000_000L;
            while (!has(group, 2) && System.nanoTime() < deadline) worker.poll(200);
            var listed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get(30, TimeUnit.SECONDS);
            claim(listed.stream().anyMatch(each -> each.groupId().equals(group) && each.type().get() == GroupType.SHARE), listed);
            var shown = admin.describeShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
            claim(shown.groupState() == GroupState.STABLE && shown.members().size() == 1, shown);
            var member = shown.members().iterator().next();
            claim(member.assignment().topicPartitions().size() == 2, member);
            try {
                admin.deleteShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS);
                claim(false, "a group with members is deleted");
            } catch (ExecutionException refused) {
                claim(refused.getCause() instanceof GroupNotEmptyException, refused);
            }
        }
        admin.deleteShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS);
        try {
            admin.describeShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS);
            claim(false, "a deleted group is described");
        } catch (ExecutionException refused) {
            claim(refused.getCause() instanceof GroupIdNotFoundException, refused);
        }
    }

    static SharePartitionOffsetInfo offset(String group, TopicPartition where) throws Exception {
        var wanted = Map.of(group, new ListShareGroupOffsetsSpec());
        return admin.listShareGroupOffsets(wanted).partitionsToOffsetInfo(group).get(30, TimeUnit.SECONDS).get(where);
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
        admin.alterShareGroupOffsets(group, Map.of(where, 8L)).all().get(30, TimeUnit.SECONDS);
        claim(offset(group, where).startOffset() == 8, offset(group, where));
        try (var worker = new Worker(group, topic)) {
            claim(worker.some().get(0).offset() == 8, worker.values);
        }
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get(30, TimeUnit.SECONDS);
        claim(offset(group, where) == null, offset(group, where));
    }
}
