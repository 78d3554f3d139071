"""What a client answers: what was named, and nothing else."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcohort.core.errors import UsageError
from fedcohort.flower import Asked, answers
from fedcohort.flower.wire import (
    KEY,
    QUERY,
    Introduction,
    MalformedReply,
    ask_message,
    hello_message,
    introduction_of,
    introduction_reply,
    numbers_of,
)
from fedcohort.selection import Context as ContextQuestion
from fedcohort.selection import LocalLoss
from tests.flower.apps import grid, initial


def asked(app: ClientApp, message: Message, **config: Any) -> Message:
    """What a node with this config replies."""
    grid(m=1)  # messages can be made in this process
    return app(message, Context(1, 7, config, RecordDict(), {}))


@pytest.fixture(autouse=True)
def in_this_process() -> None:
    grid(m=1)


def test_a_client_introduces_itself_with_what_it_was_told() -> None:
    app = answers(
        ClientApp(), num_samples=lambda context: 3 * int(context.node_config["size"]), histogram=[1, 5], reports=["loss"],
        follows=["epochs"], local_loss=lambda question: 1.0,
    )  # fmt: skip
    said = introduction_of(asked(app, hello_message(7), **{"partition-id": 4, "size": 2}))
    assert said == Introduction("4", 6, (1, 5), frozenset({"LocalLoss"}), frozenset({"loss"}), frozenset({"epochs"}))


@pytest.mark.parametrize("given", [7.9, -1, "7", None, float("nan")])
def test_numbers_of_samples_are_whole(given: Any) -> None:
    """7.9 was cut to 7."""
    message = rf"^answers\(…, num_samples={given!r}\): should be a whole number of at least 0$"
    with pytest.raises(UsageError, match=message):
        answers(ClientApp(), num_samples=given)
    with pytest.raises(UsageError, match=message):
        asked(answers(ClientApp(), num_samples=lambda context: given), hello_message(7))
    with pytest.raises(UsageError, match=r"^answers\(…, histogram=0\.5\): should be a whole number"):
        asked(answers(ClientApp(), num_samples=1, histogram=[1, 0.5]), hello_message(7))  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("given", "config", "name"),
    [
        (None, {"partition-id": 4}, "4"),
        (None, {"partition-id": 4, "name": "ward"}, "ward"),
        (None, {}, ""),
        ("clinic", {"partition-id": 4}, "clinic"),
        (lambda context: f"site-{context.node_id}", {}, "site-7"),
    ],
)
def test_names(given: Any, config: dict[str, Any], name: str) -> None:
    app = answers(ClientApp(), num_samples=1, name=given)
    assert introduction_of(asked(app, hello_message(7), **config)).name == name


def test_a_question_reaches_the_function_with_its_settings() -> None:
    seen: list[Asked] = []

    def context(question: Asked) -> list[float]:
        seen.append(question)
        return [1.0, float("inf")]

    app = answers(ClientApp(), num_samples=1, context=context)
    question = ContextQuestion(loss="robust", beta=3.0)
    found = numbers_of(asked(app, ask_message(7, question, 5, initial())), question)
    np.testing.assert_array_equal(found, [1.0, np.nan])
    (one,) = seen
    assert (one.question, one.round, one.context.node_id) == (question, 5, 7)
    assert one.arrays["w"].numpy().tolist() == [0.0, 0.0, 0.0]


def test_a_question_that_was_not_named_is_refused() -> None:
    app = answers(ClientApp(), num_samples=1, speed=lambda question: [1.0, 2.0])
    reply = asked(app, ask_message(7, LocalLoss(), 1, initial()))
    with pytest.raises(MalformedReply, match="refused: this client does not answer LocalLoss"):
        numbers_of(reply, LocalLoss())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"local_los": len}, r"answers\(…, local_los=…\): there is no such question; did you mean 'local_loss'"),
        ({"loss_change": len}, r"there is no such question"),
        ({"local_loss": 1.0}, r"answers\(…, local_loss=1.0\): must be a function"),
        ({"reports": "loss"}, r"answers\(…, reports='loss'\): is a text; give a list of names, such as \['loss'\]"),
        ({"follows": "epochs"}, r"answers\(…, follows='epochs'\): is a text; give a list of names"),
        ({"follows": ["epoch"]}, r"answers\(…, follows=\['epoch'\]\): unknown; valid are epochs, share"),
    ],
)
def test_mistakes_are_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        answers(ClientApp(), num_samples=1, **given)


def test_an_app_answers_once() -> None:
    app = answers(ClientApp(), num_samples=1)
    with pytest.raises(UsageError, match=r"answers\(app, …\): .*already registered.*call answers once"):
        answers(app, num_samples=2)


def test_a_client_says_when_the_server_speaks_another_version(caplog: pytest.LogCaptureFixture) -> None:
    where = grid()
    message = hello_message(where.nodes[0])
    message.content = RecordDict({KEY: ConfigRecord({"version": 2, "asks": "other words"})})
    where.push_messages([message])
    [reply] = where.pull_messages(["message-1"])
    assert not reply.has_error()
    line = "the server speaks version 2 of FedCohort's messages, this client version 1; install the same version of FedCohort on both"
    assert caplog.messages == [line]


def introduced(**changed: Any) -> Message:
    """An introduction with other values in its ConfigRecord."""
    reply = introduction_reply(Introduction("a", 1), hello_message(7))
    record = reply.content[KEY]
    assert isinstance(record, ConfigRecord)
    return Message(RecordDict({KEY: ConfigRecord({**record, **changed})}), reply_to=hello_message(7))


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda: introduced(version=2), "speaks version 2 of FedCohort's messages, the server version 1"),
        (lambda: introduced(introduction=3), "did not introduce itself"),
        (lambda: introduced(introduction="x" * 2**21), "did not introduce itself"),
        (lambda: introduced(introduction="{}"), r"its introduction cannot be read \('name'\)"),
        (lambda: introduced(introduction="[1"), "its introduction cannot be read"),
        (lambda: introduced(introduction="[" * 2**19), "its introduction cannot be read"),
        (
            lambda: introduction_reply(Introduction("a", -1), hello_message(7)),
            r"its introduction cannot be read \(num_samples = -1\)",
        ),
        (
            lambda: introduction_reply(Introduction("a", 1, (1, True)), hello_message(7)),
            r"its introduction cannot be read \(histogram = True\)",
        ),
        (
            lambda: introduction_reply(Introduction("a", 6, (1, 4)), hello_message(7)),
            r"its label counts \(histogram\) add up to 5, and it has 6 samples \(num_samples\)",
        ),
        (
            lambda: introduction_reply(Introduction("a\nrounds = 1", 6), hello_message(7)),
            r"its name 'a\\nrounds = 1' has characters that cannot be printed",
        ),
        (
            lambda: Message(RecordDict({KEY: MetricRecord({"answer": [1.0]})}), reply_to=hello_message(7)),
            "speaks version None",
        ),
    ],
)
def test_an_introduction_that_cannot_be_used_is_refused(reply: Any, message: str) -> None:
    with pytest.raises(MalformedReply, match=message):
        introduction_of(reply())


def test_the_model_is_sent_only_with_questions_that_need_it() -> None:
    message = ask_message(7, LocalLoss(), 3, None)
    assert message.metadata.message_type == QUERY
    assert not message.content.array_records
    assert isinstance(ask_message(7, LocalLoss(), 3, initial()).content["arrays"], ArrayRecord)
