"""`penstock queues` as a person or a script uses it. Most commands run in this process: few claims here are about how a process ends."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Ended, penstock
from waiting import until

from penstock.cli.root import run
from penstock.client import Queue
from penstock.testing import Broker

Command = Callable[..., Ended]


@pytest.fixture
def say(penstock_broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`penstock queues …` on the node; `given` is what comes by standard input."""
    monkeypatch.setenv("PENSTOCK_URL", penstock_broker.http_url)

    def command(*arguments: str, given: str = "") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        code = run(["queues", *arguments])
        sys.stdout.flush()
        return Ended(code, *capfd.readouterr())

    return command


def ok(ended: Ended) -> str:
    assert (ended.code, ended.err) == (0, ""), ended
    return ended.out


def lines(ended: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ok(ended).splitlines()]


def name_of(penstock_broker: Broker, **choices: Any) -> str:
    return penstock_broker.queue(**choices).name


def test_a_queue_from_its_making_to_its_end(say: Command):
    assert (
        ok(say("create", "cli-emails", "--lease", "2min", "--backoff", "1.5s", "--config", "retention.ms=60000")) == "cli-emails is made\n"
    )
    assert ok(say("create", "cli-emails", "--lease", "2min", "--if-not-exists")) == "cli-emails is there\n"
    again = say("create", "cli-emails")
    assert again.code == 1 and "is there already" in again.err
    (id,) = ok(say("send", "cli-emails", "--body", "hello", "--key", "k", "--header", "lang=en", "--priority", "9")).splitlines()
    assert ok(say("receive", "cli-emails")) == "hello\n"
    (message,) = lines(say("receive", "cli-emails", "--ack", "--json"))
    assert (message["id"], message["body"], message["key"], message["headers"], message["attempt"]) == (id, "hello", "k", {"lang": "en"}, 1)
    nothing = say("receive", "cli-emails")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "nothing is ready in cli-emails\n")
    assert ok(say("alter", "cli-emails", "--lease", "5s")) == "cli-emails is altered\n"
    described = ok(say("describe", "cli-emails"))
    assert described.startswith("cli-emails  1 partition  0 ready, 0 leased, 0 delayed, 1 finished\n")
    assert "queue.lease.ms        5000 (5.0 s)" in described
    (row,) = [each for each in json.loads(ok(say("list", "--json"))) if each["queue"] == "cli-emails"]
    assert (row["ready"], row["finished"], row["is_paused"]) == (0, 1, False)
    assert "cli-emails" in ok(say("list"))
    refused = say("delete", "cli-emails")
    assert (refused.code, refused.err) == (1, "penstock: deleting queue 'cli-emails' destroys its messages\n  say so: add --yes\n")
    assert ok(say("delete", "cli-emails", "--yes")) == "cli-emails is deleted\n"
    gone = say("describe", "cli-emails")
    assert gone.code == 1 and "cli-emails" in gone.err and "penstock queues create cli-emails" in gone.err


def test_lines_become_messages_and_can_be_looked_at_without_taking_them(say: Command, penstock_broker: Broker):
    name = name_of(penstock_broker)
    ids = ok(say("send", name, given="one\ntwo\nthree\n")).splitlines()
    assert [message["body"] for message in lines(say("peek", name, "--json"))] == ["one", "two", "three"]
    table = ok(say("peek", name, "--after", ids[0])).splitlines()
    assert table[0].split() == ["ID", "STATE", "ATTEMPTS", "SENT", "LAST", "FAILURE", "BODY"]
    assert [line.split()[0] for line in table[1:]] == ids[1:]
    assert ok(say("pause", name)) == f"{name} is paused\n"
    assert say("receive", name).out == ""
    assert "paused" in ok(say("describe", name))
    assert ok(say("resume", name)) == f"{name} goes on\n"
    assert ok(say("receive", name, "--max", "2", "--hold")) == "one\ntwo\n"
    assert [message["id"] for message in lines(say("peek", name, "--state", "leased", "--json"))] == ids[:2]
    assert ok(say("cancel", name, ids[2])) == f"{ids[2]} is cancelled\n"
    late = say("cancel", name, ids[2])
    assert late.code == 1 and "could not be cancelled" in late.err
    assert ok(say("purge", name, "--yes")) == f"{name} is empty\n"


def test_a_message_is_found_with_what_happened_to_it(say: Command, penstock_broker: Broker):
    queue = penstock_broker.queue(backoff=0)
    id = queue.send("hello")
    queue.receive(1)[0].nack(delay=600, reason="no paper")
    told = ok(say("find", queue.name, id)).splitlines()
    assert told[0].startswith(f"{id}  delayed  1 attempt  sent ")
    assert told[-2].split() == ["ATTEMPT", "TAKEN", "TOOK", "WORKER", "REASON"]
    assert told[-1].endswith("no paper")
    (found,) = lines(say("find", queue.name, id, "--json"))
    assert [attempt["reason"] for attempt in found["history"]] == ["no paper"]
    unknown = say("find", queue.name, id[:-4] + "ffff")
    assert unknown.code == 1 and "has no message" in unknown.err


def test_dead_letters_are_counted_then_sent_back_by_reason_and_by_a_list(say: Command, penstock_broker: Broker, tmp_path: Path):
    dead = penstock_broker.queue()
    source = penstock_broker.queue(deliveries=1, backoff=0, dead_letters=dead.name)
    source.send_many(["a", "b", "c"])
    for message in source.receive(3):
        message.nack(reason="timeout" if message.text == "a" else "no such customer")
    until_ready(dead, 3)
    dry = ok(say("redrive", dead.name, "--reason", "timeout", "--dry-run"))
    assert dry == f"1 dead letter would be moved\n  1 to {source.name}\n"
    done = say("redrive", dead.name, "--reason", "timeout", "--rate", "100")  # How far it has come may stand on standard error.
    assert (done.code, done.out) == (0, f"1 dead letter moved\n  1 to {source.name}\n")
    wanted = [found.id for found in dead.peek() if found.text == "c"]
    file = tmp_path / "redrive.txt"
    file.write_text(f"# what the report says\n{wanted[0]},no such customer\n")
    (moved,) = lines(say("redrive", dead.name, "--ids-from", str(file), "--json"))
    assert (moved["status"], moved["moved"], moved["by_target"]) == ("completed", 1, {source.name: 1})
    assert sorted(message.text for message in source.receive(5)) == ["a", "c"]
    assert [found.text for found in dead.peek()] == ["b"]
    file.write_text("# nothing\n")
    assert say("redrive", dead.name, "--ids-from", str(file)).err.startswith("penstock: --ids-from: there is no id in it")
    file.write_text("".join(f"id-{number}\n" for number in range(100_001)))
    many = say("redrive", dead.name, "--ids-from", str(file))
    assert many.code == 2 and "100000 ids can be redriven at a time, not 100001; split the file" in many.err


def test_a_redrive_that_nobody_waits_for_is_shown_and_cancelled(say: Command, penstock_broker: Broker):
    dead, other = penstock_broker.queue(), penstock_broker.queue()
    dead.send_many([str(number) for number in range(30)])
    assert ok(say("redrives", dead.name)) == f"{dead.name} was never redriven\n"
    begun = dead.redrive(to=other.name, rate=1)
    assert [each.progress.handle for each in dead.redrives()] == [begun.progress.handle]
    table = ok(say("redrives", dead.name, "--cancel")).splitlines()
    assert (table[0].split(), len(table)) == (["STATUS", "MOVED", "TO", "MOVE", "TO", "FAILURE"], 2)
    ended = begun.wait()
    assert (ended.status, ended.moved < 30) == ("cancelled", True)
    (shown,) = lines(say("redrives", dead.name, "--json"))
    assert [(each["status"], each["moved"]) for each in shown["redrives"]] == [("cancelled", ended.moved)]


def test_a_redrive_names_the_queue_that_is_not_there_and_the_one_that_will_not_do(say: Command, penstock_broker: Broker):
    dead, ordered = penstock_broker.queue(), penstock_broker.queue(fifo=True)
    missing = say("redrive", dead.name, "--to", "nosuch")
    assert (missing.code, missing.err.splitlines()) == (
        1,
        ["penstock: there is no queue called 'nosuch'", "  create it: penstock queues create nosuch, or queue.ensure()"],
    )
    assert "penstock queues create no-dead" in say("redrive", "no-dead", "--to", dead.name).err
    for more in ((), ("--dry-run",)):
        refused = say("redrive", dead.name, "--to", ordered.name, *more)
        assert refused.code == 1 and f"the queue '{ordered.name}' is FIFO and '{dead.name}' is not" in refused.err
    assert ok(say("redrive", ordered.name, "--to", dead.name)) == "0 dead letters moved\n"


def until_ready(queue: Queue, count: int) -> None:
    until(lambda: queue.counts().ready >= count, lambda: f"{count} messages are ready, of {queue.counts()}")


def test_what_is_kept_is_had_again(say: Command, penstock_broker: Broker):
    queue = penstock_broker.queue(keep=True)
    queue.send("hello")
    queue.receive(1)[0].ack()
    assert ok(say("rewind", queue.name, "--to", "2026-01-01")) == f"{queue.name} has 1 message from there on\n"
    assert ok(say("receive", queue.name, "--ack")) == "hello\n"
    first = queue.send("world")
    queue.receive(1)[0].ack()
    assert ok(say("rewind", queue.name, "--to-id", first)) == f"{queue.name} has 1 message from there on\n"
    assert ok(say("rewind", queue.name, "--to-offset", "0")) == f"{queue.name} has 2 messages from there on\n"
    assert "ends at offset 2, before 3" in say("rewind", queue.name, "--to-offset", "3").err
    assert "has the partitions 0 to 0, not 1" in say("rewind", queue.name, "--to-offset", "0", "--partition", "1").err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("rewind", "x"), "say where to: by one of --to, --to-id and --to-offset"),
        (("rewind", "x", "--to", "2026-01-01", "--to-offset", "0"), "say where to: by one of"),
        (("create", "x", "--lease", "5 parsecs"), "'5 parsecs' is no span of time such as 90s, 10min, 1.5h or 7d"),
        (("send", "x", "--body", "b", "--at", "soon"), "--at 'soon' is neither @milliseconds nor an ISO 8601 time"),
        (("send", "x", "--body", "b", "--priority", "10"), "10 is not in the range 0<=x<=9"),
        (("redrive", "x", "--failed-after", "soon"), "--failed-after 'soon' is neither"),
        (("alter", "x"), "say what to alter"),
        (("peek", "x", "--state", "lost"), "'lost' is not one of"),
        (("send", "jobs", "--body", "x", "--delay", "1s", "--at", "@1"), "--delay and --at exclude each other"),
        (("receive", "jobs", "--ack", "--hold"), "say one of them"),
        (("list", "--url", "ftp://x"), "'ftp://x' is no address such as http://127.0.0.1:8080"),
        (("send", "x", "--body", "b", "--url", "http://h:99999"), "the port of 'http://h:99999' must be a number from 1 to 65535"),
        (("describe", "x", "--url", "http://h:abc"), "the port of 'http://h:abc' must be a number from 1 to 65535"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(say: Command, arguments: tuple[str, ...], complaint: str):
    ended = say(*arguments)
    assert ended.code == 2 and complaint in ended.err


def test_of_several_nodes_the_first_that_is_there_answers(say: Command, penstock_broker: Broker, monkeypatch: pytest.MonkeyPatch):
    queue = penstock_broker.queue()
    monkeypatch.setenv("PENSTOCK_URL", f"http://127.0.0.1:1,{penstock_broker.http_url}")
    ok(say("send", queue.name, "--body", "hello"))
    assert ok(say("receive", queue.name)) == "hello\n"
    assert queue.name in ok(say("list"))


def test_a_setting_that_nobody_knows_or_that_cannot_be_is_told_in_the_nodes_words(say: Command):
    unknown = say("create", "cli-odd", "--config", "queue.colour=red")
    assert unknown.code == 1 and "queue.colour" in unknown.err
    long = say("create", "cli-odd", "--lease", "13h")
    assert long.code == 1 and "queue.lease.ms" in long.err


def test_as_a_process_it_completes_names_and_says_where_nobody_answers(penstock_broker: Broker):
    name = name_of(penstock_broker)
    words = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": f"penstock queues describe {name[:8]}", "COMP_CWORD": "3"}
    # The node is asked for a second only: a person waits. A machine that stands still as long offers nothing.
    offered = until(lambda: penstock(environment=words | {"PENSTOCK_URL": penstock_broker.http_url}).out, "names are offered")
    assert f"plain,{name}" in offered.splitlines()
    alone = penstock("queues", "list", "--url", "http://127.0.0.1:1")
    assert (alone.code, alone.err.splitlines()) == (
        1,
        [
            "penstock: 127.0.0.1:1 cannot be reached: Connection refused",
            "  start a node with penstock serve, or name one with --url or PENSTOCK_URL",
        ],
    )
