// KafkaJS against a node. Prints a line for each feature: its name, a tab, and "ok" or what went wrong.
//
//   node play.js BOOTSTRAP PREFIX    PREFIX begins the name of every topic and group, so that runs do not meet.
//
// KafkaJS brings gzip and leaves the other codecs to plug-ins; those for lz4 and zstd are written here over packages without native code.

"use strict";

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4js");
const zstd = require("@bokuweb/zstd-wasm");

const PATIENCE_MS = 60_000;
const [bootstrap, prefix] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "conformance", brokers: [bootstrap], logLevel: logLevel.NOTHING });
let admin;

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

async function main() {
  await zstd.init();
  admin = kafka.admin();
  await admin.connect();
  await play("no codec", () => codec("none", CompressionTypes.None));
  await play("gzip", () => codec("gzip", CompressionTypes.GZIP));
  await play("snappy", () => codec("snappy", CompressionTypes.Snappy));
  await play("lz4", () => codec("lz4", CompressionTypes.LZ4));
  await play("zstd", () => codec("zstd", CompressionTypes.ZSTD));
  await play("keys, headers, times", keysHeadersTimes);
  await play("idempotent producer", idempotent);
  await play("group of two", groupOfTwo);
  await play("resume from commit", resume);
  await play("create and describe topic", createAndDescribe);
  await play("change settings", changeSettings);
  await play("add partitions", addPartitions);
  await play("delete records", deleteRecords);
  await play("offsets by time", offsetsByTime);
  await play("list and describe groups", listAndDescribeGroups);
  await play("reset group offsets", resetGroupOffsets);
  await play("delete group", deleteGroup);
  await play("delete topic", deleteTopic);
  await play("a proper no", properNo);
  process.exit(0);
}

async function play(feature, scenario) {
  let timer;
  const late = new Promise((_, refuse) => {
    timer = setTimeout(() => refuse(new Error("it took too long")), PATIENCE_MS);
  });
  try {
    await Promise.race([scenario(), late]);
    console.log(`${feature}\tok`);
  } catch (failure) {
    console.log(`${feature}\t${String(failure).replace(/\s+/g, " ")}`);
  }
  clearTimeout(timer);
}

function claim(holds, what, about) {
  if (!holds) throw new Error(`not so: ${what} (${JSON.stringify(about)})`);
}

async function until(what, holds) {
  const deadline = Date.now() + PATIENCE_MS / 2;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function newTopic(name, numPartitions = 1, configEntries = []) {
  const topic = prefix + name;
  const made = await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, configEntries }] });
  claim(made === true, "the topic was made", topic);
  return topic;
}

function numbered(from, to) {
  const messages = [];
  for (let number = from; number < to; number++) {
    messages.push({ key: String(number), value: `${String(number).padStart(5, "0")} ${"penstock ".repeat(20)}` });
  }
  return messages;
}

async function produce(topic, messages, { compression, ...options } = {}) {
  const producer = kafka.producer(options);
  await producer.connect();
  try {
    return await producer.send({ topic, messages, compression, acks: -1 });
  } finally {
    await producer.disconnect();
  }
}

// A member of a group that keeps what it got. `owned` are its partitions since the last rebalance.
async function join(groupId, topic, options = {}) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 500, maxWaitTimeInMs: 200, ...options });
  const member = { consumer, got: [], owned: [], leave: () => consumer.disconnect() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = payload.memberAssignment[topic] ?? [];
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.got.push({ partition, offset: message.offset, key: message.key, value: message.value, message });
    },
  });
  return member;
}

async function commit(member, topic) {
  const next = new Map();
  for (const { partition, offset } of member.got) next.set(partition, String(BigInt(offset) + 1n));
  await member.consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset })));
}

async function consume(topic, count) {
  const member = await join(`${topic}.reader`, topic);
  try {
    await until(`${count} records came`, () => member.got.length >= count);
  } finally {
    await member.leave();
  }
  return member.got;
}

async function codec(name, compression) {
  const topic = await newTopic(`codec.${name}`);
  await produce(topic, numbered(0, 300), { compression });
  const got = await consume(topic, 300);
  claim(got.length === 300, "300 records", got.length);
  got.forEach(({ offset, value }, number) => {
    claim(offset === String(number) && Number(value.toString().slice(0, 5)) === number, `record ${number} is itself`, offset);
  });
}

async function keysHeadersTimes() {
  const topic = await newTopic("headers");
  await produce(topic, [{ key: "k", value: null, timestamp: "1700000000123", headers: { a: Buffer.from([0, 255]), b: ["x", "y"] } }]);
  const [{ message }] = await consume(topic, 1);
  const same = message.key.toString() === "k" && message.value === null && message.timestamp === "1700000000123";
  claim(same && message.headers.a.equals(Buffer.from([0, 255])) && message.headers.b.length === 2, "what came back is what was sent", message);
}

async function idempotent() {
  const topic = await newTopic("idempotent");
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 });
  await producer.connect();
  for (let from = 0; from < 500; from += 50) await producer.send({ topic, messages: numbered(from, from + 50), acks: -1 });
  await producer.disconnect();
  const got = await consume(topic, 500);
  claim(got.length === 500 && got.every(({ value }, number) => Number(value.toString().slice(0, 5)) === number), "each once, in order", got.length);
}

async function groupOfTwo() {
  const topic = await newTopic("shared", 4);
  const first = await join(`${prefix}pair`, topic);
  await until("the first member owns all", () => first.owned.length === 4);
  const second = await join(`${prefix}pair`, topic);
  await until("both own two partitions", () => first.owned.length === 2 && second.owned.length === 2);
  await produce(topic, numbered(0, 200));
  await until("both together got 200 records", () => first.got.length + second.got.length === 200);
  claim(first.got.length > 0 && second.got.length > 0, "both got some", first.got.length);
  await commit(first, topic);
  await commit(second, topic);
  await second.leave();
  await until("the first took over", () => first.owned.length === 4);
  await first.leave();
}

async function resume() {
  const topic = await newTopic("resumed");
  for (const round of [0, 1]) {
    await produce(topic, numbered(round * 10, round * 10 + 10));
    const member = await join(`${prefix}resuming`, topic);
    await until("ten more came", () => member.got.length >= 10);
    await commit(member, topic);
    await member.leave();
    claim(member.got.length === 10 && member.got[0].offset === String(round * 10), `round ${round} begins where the last ended`, member.got[0].offset);
  }
}

async function createAndDescribe() {
  const topic = await newTopic("described", 3, [{ name: "retention.ms", value: "604800000" }]);
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  const cluster = await admin.describeCluster();
  claim(topics[0].partitions.length === 3 && topics[0].partitions.every(({ leader }) => leader === cluster.brokers[0].nodeId), "on one node", topics);
  claim((await admin.listTopics()).includes(topic), "it is listed", topic);
}

async function changeSettings() {
  const topic = await newTopic("settings");
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "3600000" }] }] });
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ ...resource, configNames: ["retention.ms"] }] });
  claim(resources[0].configEntries[0].configValue === "3600000", "it has the new value", resources);
}

async function addPartitions() {
  const topic = await newTopic("widened");
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  claim(topics[0].partitions.length === 4, "four partitions", topics);
}

async function deleteRecords() {
  const topic = await newTopic("trimmed");
  await produce(topic, numbered(0, 10));
  await admin.fetchTopicOffsets(topic); // This client looks for the leader before it has asked for the topic's metadata.
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "4" }] });
  const [{ low, high }] = await admin.fetchTopicOffsets(topic);
  claim(low === "4" && high === "10", "the log starts at 4", { low, high });
}

async function offsetsByTime() {
  const topic = await newTopic("timed");
  await produce(topic, numbered(0, 5).map((message) => ({ ...message, timestamp: "1700000000000" })));
  await produce(topic, numbered(5, 10).map((message) => ({ ...message, timestamp: "1700000009000" })));
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, 1_700_000_005_000);
  claim(offset === "5", "the first record after that time", offset);
}

async function listAndDescribeGroups() {
  const topic = await newTopic("watched", 2);
  const groupId = `${prefix}watched`;
  const member = await join(groupId, topic);
  await until("the member owns all", () => member.owned.length === 2);
  const { groups } = await admin.listGroups();
  const described = await admin.describeGroups([groupId]);
  await member.leave();
  claim(groups.some((group) => group.groupId === groupId && group.protocolType === "consumer"), "it is listed", groups);
  claim(described.groups[0].state === "Stable" && described.groups[0].members.length === 1, "it is stable with one member", described);
}

// Leaves a group with committed offsets and no members: offset 3 of 10.
async function committedGroup(name) {
  const topic = await newTopic(name);
  await produce(topic, numbered(0, 10));
  await admin.setOffsets({ groupId: prefix + name, topic, partitions: [{ partition: 0, offset: "3", metadata: "by hand" }] });
  return [prefix + name, topic];
}

async function resetGroupOffsets() {
  const [groupId, topic] = await committedGroup("reset");
  const before = await admin.fetchOffsets({ groupId, topics: [topic] });
  claim(before[0].partitions[0].offset === "3", "it is at 3", before);
  await admin.resetOffsets({ groupId, topic, earliest: true });
  const after = await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true });
  claim(after[0].partitions[0].offset === "0", "it is back at 0", after);
}

async function deleteGroup() {
  const [groupId] = await committedGroup("deleted");
  const [answer] = await admin.deleteGroups([groupId]);
  const { groups } = await admin.listGroups();
  claim(answer.errorCode === 0 && !groups.some((group) => group.groupId === groupId), "it is listed no more", answer);
}

async function deleteTopic() {
  const topic = await newTopic("gone");
  await admin.deleteTopics({ topics: [topic] });
  claim(!(await admin.listTopics()).includes(topic), "it is listed no more", topic);
}

async function properNo() {
  const topic = await newTopic("twice");
  claim((await admin.createTopics({ topics: [{ topic }] })) === false, "a topic is made once", topic);
  await refused("INVALID_CONFIG", () => newTopic("crooked", 1, [{ name: "retention.ms", value: "banana" }]));
  await refused("UNKNOWN_TOPIC_OR_PARTITION", () => admin.deleteTopics({ topics: [`${prefix}never-made`] }));
  await refused("INVALID_REPLICATION_FACTOR", () => admin.createTopics({ topics: [{ topic: `${prefix}thrice`, replicationFactor: 3 }] }));
}

async function refused(type, act) {
  try {
    await act();
  } catch (failure) {
    const said = failure.type ?? failure.errors?.[0]?.type ?? failure.cause?.type;
    return claim(said === type, `it is refused with ${type}`, said ?? String(failure));
  }
  throw new Error(`not so: it is refused with ${type}`);
}

main();
