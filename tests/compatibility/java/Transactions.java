// Transactions through Apache Kafka's Java clients.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Transactions extends Clients {
    static void add() {
        add("committed and aborted", Transactions::committedAndAborted);
        add("readers wait", Transactions::readersWait);
        add("several partitions", Transactions::severalPartitions);
        add("offsets with the records", Transactions::offsets);
        add("offsets that are not stable", Transactions::unstableOffsets);
        add("offsets of one who left", Transactions::offsetsOfOneWhoLeft);
        add("second producer fences the first", Transactions::fenced);
        add("fenced by an admin", Transactions::fencedByAdmin);
        add("terminated by an admin", Transactions::terminatedByAdmin);
        add("too slow", Transactions::tooSlow);
        add("time-out too long", Transactions::timeoutTooLong);
        add("out of turn", Transactions::outOfTurn);
        add("listed and described", Transactions::listedAndDescribed);
        add("aborted in a partition", Transactions::abortedInPartition);
        add("a producer goes on after an error", Transactions::goesOnAfterError);
        add("the feature is announced", Transactions::announced);
    }

    static Throwable refusal(Scene scene) throws Exception {
        try {
            scene.play();
        } catch (ExecutionException failure) {
            return failure.getCause();
        } catch (Exception failure) {
            return failure;
        }
        throw new IllegalStateException("taken instead of refused");
    }

    static String topic(int partitions) throws Exception {
        String name = unique("java-transactions");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        Waiting.until("it is there", () -> admin.listTopics().names().get().contains(name));
        return name;
    }

    static KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transaction.timeout.ms", timeoutMs);
        config.put("max.block.ms", Waiting.PATIENCE_MS);
        if (id != null) config.put("transactional.id", id);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaProducer<String, String> begun(String id) {
        KafkaProducer<String, String> producer = producer(id, Waiting.NEVER_MS);
        producer.initTransactions();
        return producer;
    }

    static ProducerRecord<String, String> record(String topic, String value) {
        return new ProducerRecord<>(topic, 0, null, value);
    }

    static void writePlainly(String topic, String... values) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String value : values) producer.send(record(topic, value)).get();
        }
    }

    static KafkaConsumer<String, String> consumer(String group, String isolation) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("isolation.level", isolation);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        if (group != null) config.put("group.id", group);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    /** What a reader finds up to where it must wait: up to the end as its isolation sees it. */
    static List<String> visible(String topic, int partitions, String isolation) throws Exception {
        List<TopicPartition> places = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) places.add(new TopicPartition(topic, partition));
        List<String> found = new ArrayList<>();
        try (var consumer = consumer(null, isolation)) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            Waiting.until("read to the end " + ends, () -> {
                if (places.stream().allMatch(place -> consumer.position(place) >= ends.get(place))) return true;
                consumer.poll(Waiting.ASK).forEach(each -> found.add(each.value()));
                return false;
            });
        }
        return found;
    }

    static void untilVisible(String topic, String... values) throws Exception {
        List<String> wanted = List.of(values);
        Waiting.until("visible is " + wanted, () -> visible(topic, 1, "read_committed").equals(wanted));
    }

    static void committedAndAborted() throws Exception {
        String topic = topic(1);
        try (var producer = begun(unique("writer"))) {
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                for (String part : List.of("a", "b")) producer.send(record(topic, number + part));
                producer.flush();
                if (number % 2 == 0) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
        untilVisible(topic, "0a", "0b", "2a", "2b");
        claim(visible(topic, 1, "read_uncommitted").size() == 8, "all of it is there");
    }

    static void readersWait() throws Exception {
        String topic = topic(1);
        var where = new TopicPartition(topic, 0);
        writePlainly(topic, "before");
        try (var producer = begun(unique("writer"))) {
            producer.beginTransaction();
            producer.send(record(topic, "inside")).get();
            writePlainly(topic, "after");
            claim(visible(topic, 1, "read_committed").equals(List.of("before")), "they wait");
            claim(visible(topic, 1, "read_uncommitted").equals(List.of("before", "inside", "after")), "others do not");
            var committed = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
            long stable = admin.listOffsets(Map.of(where, OffsetSpec.latest()), committed).partitionResult(where).get().offset();
            long end = admin.listOffsets(Map.of(where, OffsetSpec.latest())).partitionResult(where).get().offset();
            claim(stable == 1 && end == 3, "stable to " + stable + " of " + end);
            producer.commitTransaction();
        }
        untilVisible(topic, "before", "inside", "after");
    }

    static void severalPartitions() throws Exception {
        String wide = topic(5), narrow = topic(1);
        try (var producer = begun(unique("writer"))) {
            for (boolean isKept : new boolean[] {false, true}) {
                producer.beginTransaction();
                for (int number = 0; number < 500; number++) producer.send(new ProducerRecord<>(wide, number % 5, null, isKept + " " + number));
                producer.send(record(narrow, "" + isKept));
                producer.flush();
                if (isKept) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
        untilVisible(narrow, "true");
        List<String> found = visible(wide, 5, "read_committed");
        claim(found.size() == 500 && found.stream().allMatch(each -> each.startsWith("true")), found.size() + " " + found);
    }

    static List<String> take(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<String> found = new ArrayList<>();
        Waiting.until(count + " records come", () -> {
            consumer.poll(Waiting.ASK).forEach(each -> found.add(each.value()));
            return found.size() >= count;
        });
        return found;
    }

    static OffsetAndMetadata committed(String group, TopicPartition where) throws Exception {
        var spec = new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(where));
        var options = new ListConsumerGroupOffsetsOptions().requireStable(true);
        return admin.listConsumerGroupOffsets(Map.of(group, spec), options).partitionsToOffsetAndMetadata(group).get().get(where);
    }

    static void offsets() throws Exception {
        String source = topic(1), target = topic(1), group = unique("group");
        var where = new TopicPartition(source, 0);
        writePlainly(source, "a", "b", "c");
        try (var producer = begun(unique("writer"))) {
            for (boolean isKept : new boolean[] {false, true}) {
                try (var consumer = consumer(group, "read_committed")) {
                    consumer.subscribe(List.of(source));
                    List<String> read = take(consumer, 3);
                    producer.beginTransaction();
                    for (String value : read) producer.send(record(target, isKept + value));
                    producer.sendOffsetsToTransaction(Map.of(where, new OffsetAndMetadata(3, "a note")), consumer.groupMetadata());
                    if (isKept) producer.commitTransaction(); else producer.abortTransaction();
                }
                OffsetAndMetadata found = committed(group, where);
                claim(isKept ? found.offset() == 3 && found.metadata().equals("a note") : found == null, isKept + ": " + found);
            }
        }
        untilVisible(target, "truea", "trueb", "truec");
    }

    static void unstableOffsets() throws Exception {
        String source = topic(1), group = unique("group");
        var where = new TopicPartition(source, 0);
        writePlainly(source, "a", "b", "c");
        try (var producer = begun(unique("writer")); var consumer = consumer(group, "read_committed")) {
            consumer.subscribe(List.of(source));
            take(consumer, 3);
            consumer.commitSync(Map.of(where, new OffsetAndMetadata(1)));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(where, new OffsetAndMetadata(3)), consumer.groupMetadata());
            var spec = new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(where));
            var carefree = admin.listConsumerGroupOffsets(Map.of(group, spec)).partitionsToOffsetAndMetadata(group).get();
            claim(carefree.get(where).offset() == 1, "what holds is told: " + carefree);
            claim(committed(group, where) == null, "the admin leaves out what is not stable");
            Throwable told = refusal(() -> consumer.committed(Set.of(where), Waiting.EXPIRES));
            claim(told instanceof org.apache.kafka.common.errors.TimeoutException, told);
            producer.commitTransaction();
        }
        claim(committed(group, where).offset() == 3, "then it is stable");
    }

    static void offsetsOfOneWhoLeft() throws Exception {
        String source = topic(1), target = topic(1), group = unique("group");
        var where = new TopicPartition(source, 0);
        writePlainly(source, "a");
        ConsumerGroupMetadata membership;
        try (var consumer = consumer(group, "read_committed")) {
            consumer.subscribe(List.of(source));
            take(consumer, 1);
            membership = consumer.groupMetadata();
        }
        try (var producer = begun(unique("writer"))) {
            producer.beginTransaction();
            producer.send(record(target, "of a zombie"));
            Throwable told = refusal(() -> producer.sendOffsetsToTransaction(Map.of(where, new OffsetAndMetadata(1)), membership));
            claim(told instanceof CommitFailedException, told);
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(record(target, "next"));
            producer.commitTransaction();
        }
        untilVisible(target, "next");
        claim(committed(group, where) == null, "nothing was committed");
    }

    static void fenced() throws Exception {
        String topic = topic(1), id = unique("twin");
        try (var first = begun(id)) {
            first.beginTransaction();
            first.send(record(topic, "first")).get();
            try (var second = begun(id)) {
                Throwable told = refusal(() -> { first.send(record(topic, "zombie")).get(); first.commitTransaction(); });
                claim(told instanceof ProducerFencedException || told instanceof InvalidProducerEpochException, told);
                second.beginTransaction();
                second.send(record(topic, "second"));
                second.commitTransaction();
            }
        } catch (ProducerFencedException closing) {
            claim(true, closing);
        }
        untilVisible(topic, "second");
    }

    static void fencedByAdmin() throws Exception {
        String topic = topic(1), id = unique("fenced");
        try (var producer = begun(id)) {
            producer.beginTransaction();
            producer.send(record(topic, "v")).get();
            var fencing = admin.fenceProducers(List.of(id));
            claim(fencing.producerId(id).get() >= 0 && fencing.epochId(id).get() > 0, "it tells who is let in");
            claim(refusal(producer::commitTransaction) instanceof ProducerFencedException, "it is shut out");
        } catch (ProducerFencedException closing) {
            claim(true, closing);
        }
        untilVisible(topic);
    }

    static void terminatedByAdmin() throws Exception {
        String topic = topic(1), id = unique("terminated");
        try (var producer = begun(id)) {
            producer.beginTransaction();
            producer.send(record(topic, "v")).get();
            admin.forceTerminateTransaction(id).result().get();
            var told = admin.describeTransactions(List.of(id)).description(id).get();
            claim(told.state() == TransactionState.EMPTY && told.topicPartitions().isEmpty(), told);
            claim(refusal(producer::commitTransaction) instanceof ProducerFencedException, "its producer is shut out");
        } catch (ProducerFencedException closing) {
            claim(true, closing);
        }
        untilVisible(topic);
    }

    static void tooSlow() throws Exception {
        String topic = topic(1);
        try (var producer = producer(unique("slow"), 500)) {
            producer.initTransactions();
            producer.beginTransaction();
            var sent = producer.send(record(topic, "slow"));
            writePlainly(topic, "after");
            untilVisible(topic, "after");
            Throwable told = refusal(() -> {
                sent.get();  // Refused already, if the time was over before it came.
                producer.commitTransaction();
            });
            claim(told instanceof ProducerFencedException || told instanceof InvalidProducerEpochException || told instanceof InvalidTxnStateException, told);
        } catch (KafkaException closing) {
            claim(true, closing);
        }
    }

    static void timeoutTooLong() throws Exception {
        try (var producer = producer(unique("patient"), 3_600_000)) {
            Throwable told = refusal(producer::initTransactions);
            claim(told instanceof KafkaException && told.getMessage().contains("transaction timeout is larger"), told);
        }
    }

    static void outOfTurn() throws Exception {
        String topic = topic(1);
        try (var producer = begun(unique("writer"))) {
            claim(refusal(producer::commitTransaction) instanceof IllegalStateException, "commit");
            producer.beginTransaction();
            claim(refusal(producer::beginTransaction) instanceof IllegalStateException, "begin twice");
            producer.commitTransaction();
        }
        KafkaProducer<String, String> clumsy = begun(unique("writer"));  // It keeps the refused record in its buffer, and waits for it.
        claim(refusal(() -> clumsy.send(record(topic, "v"))) instanceof IllegalStateException, "send");
        clumsy.close(Duration.ZERO);
    }

    static void listedAndDescribed() throws Exception {
        String topic = topic(2), id = unique("seen");
        try (var producer = begun(id)) {
            claim(admin.describeTransactions(List.of(id)).description(id).get().state() == TransactionState.EMPTY, "empty at first");
            producer.beginTransaction();
            producer.send(record(topic, "v")).get();
            var told = admin.describeTransactions(List.of(id)).description(id).get();
            claim(told.state() == TransactionState.ONGOING && told.topicPartitions().equals(Set.of(new TopicPartition(topic, 0))), told);
            claim(told.transactionTimeoutMs() == Waiting.NEVER_MS && told.transactionStartTimeMs().isPresent(), told);
            var ongoing = new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING));
            claim(admin.listTransactions(ongoing).all().get().stream().anyMatch(each -> each.transactionalId().equals(id)), "listed");
            var old = new ListTransactionsOptions().filterOnDuration(3_600_000);
            claim(admin.listTransactions(old).all().get().stream().noneMatch(each -> each.transactionalId().equals(id)), "not old");
            var named = new ListTransactionsOptions().filterOnTransactionalIdPattern("seen-.*");
            claim(admin.listTransactions(named).all().get().stream().allMatch(each -> each.transactionalId().startsWith("seen-")), "by pattern");
            var by = new ListTransactionsOptions().filterProducerIds(List.of(told.producerId()));
            claim(admin.listTransactions(by).all().get().size() == 1, "by producer");
            producer.commitTransaction();
            Waiting.until("it is over", () -> admin.describeTransactions(List.of(id)).description(id).get().state() == TransactionState.COMPLETE_COMMIT);
        }
        String nobody = unique("nobody");
        claim(refusal(() -> admin.describeTransactions(List.of(nobody)).description(nobody).get()) instanceof TransactionalIdNotFoundException, "unknown");
    }

    static void abortedInPartition() throws Exception {
        String topic = topic(1), id = unique("hanging");
        var where = new TopicPartition(topic, 0);
        try (var producer = begun(id)) {
            producer.beginTransaction();
            producer.send(record(topic, "kept")).get();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(record(topic, "v")).get();
            ProducerState state = admin.describeProducers(List.of(where)).partitionResult(where).get().activeProducers().get(0);
            claim(state.currentTransactionStartOffset().getAsLong() == 2 && state.producerEpoch() == 1, state);
            var spec = new AbortTransactionSpec(where, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0));
            admin.abortTransaction(spec).all().get();
            ProducerState after = admin.describeProducers(List.of(where)).partitionResult(where).get().activeProducers().get(0);
            claim(after.currentTransactionStartOffset().isEmpty(), after);
            writePlainly(topic, "after");
            untilVisible(topic, "kept", "after");
            var stale = new AbortTransactionSpec(where, state.producerId(), (short) (state.producerEpoch() - 1), 0);
            Throwable told = refusal(() -> admin.abortTransaction(stale).all().get());
            claim(told instanceof InvalidProducerEpochException, told);
            producer.abortTransaction();
        }
    }

    /** A record too large fails its transaction; the producer aborts it and goes on. */
    static void goesOnAfterError() throws Exception {
        String topic = topic(1);
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", unique("clumsy"));
        config.put("max.request.size", 4_000_000);
        config.put("max.block.ms", Waiting.PATIENCE_MS);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int round = 0; round < 3; round++) {
                producer.beginTransaction();
                producer.send(record(topic, "small " + round));
                if (round == 1) {
                    claim(refusal(() -> producer.send(record(topic, "x".repeat(3_000_000))).get()) instanceof RecordTooLargeException, "too large");
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        untilVisible(topic, "small 0", "small 2");
    }

    static void announced() throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        var version = features.finalizedFeatures().get("transaction.version");
        claim(version != null && version.maxVersionLevel() == 2, features);
    }
}
