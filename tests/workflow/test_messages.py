from workflow import Context, Message, MessageType


def test_context_keeps_messages_by_type_and_order() -> None:
    context = Context.for_question("Q?", {"tries": 1})
    first = Message("one", sender="a")
    second = Message("two", MessageType.CRITIQUE)
    context.add_message(first)
    context.add_message(second)
    assert context.question == "Q?"
    assert context.get_messages_by_type(MessageType.AGENT_RESPONSE) == [first]
    assert context.get_messages_by_type(MessageType.ERROR) == []
    assert context.get_latest_message() is second
    assert context.get_latest_message(MessageType.AGENT_RESPONSE) is first
    assert context.get_latest_message(MessageType.ERROR) is None
    assert context.get_state("tries") == 1
    assert context.get_state("missing", 7) == 7
    context.set_state("tries", 2)
    assert context.state == {"tries": 2}


def test_empty_context() -> None:
    context = Context()
    assert context.question == ""
    assert context.get_latest_message() is None


def test_the_question_is_the_first_user_message() -> None:
    context = Context.for_question("first")
    context.add_message(Message("second", MessageType.USER_INPUT))
    assert context.question == "first"


def test_initial_state_is_copied() -> None:
    state = {"a": 1}
    Context.for_question("Q", state).set_state("a", 2)
    assert state == {"a": 1}


def test_extended_copies_messages_and_shares_state() -> None:
    context = Context.for_question("Q")
    copy = context.extended(Message("more"), reader="Bob")
    assert [message.content for message in copy.messages] == ["Q", "more"]
    assert len(context.messages) == 1
    assert copy.metadata == {"reader": "Bob"}
    assert context.metadata == {}
    copy.set_state("x", 1)
    assert context.get_state("x") == 1
    assert copy.extended().metadata == {"reader": "Bob"}


def test_message_type_may_be_written_as_text() -> None:
    assert Message("x", "critique").message_type is MessageType.CRITIQUE


def test_delivery_is_the_marked_part_else_the_content() -> None:
    assert Message("whole").delivery == "whole"
    assert Message("whole", metadata={"delivery": "part"}).delivery == "part"
