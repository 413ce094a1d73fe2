"""Records by key and by kind."""

from rlmm.keyed_records import KeyedRecords


def records(*keys: str) -> KeyedRecords[str]:
    made: KeyedRecords[str] = KeyedRecords()
    for key in keys:
        made.put(key, f"record of {key}")
    return made


def test_records_of_a_kind_are_listed_by_key() -> None:
    made = records("topic/b", "start/b/0", "topic/a", "topics")
    assert made.of_kind("topic") == ("record of topic/a", "record of topic/b")
    assert made.of_kind("store") == ()
    assert made.sorted()[0] == "record of start/b/0"


def test_a_record_replaces_the_one_of_its_key_and_leaves_with_it() -> None:
    made = records("topic/a")
    made.put("topic/a", "newer")
    assert (made.get("topic/a"), made.of_kind("topic")) == ("newer", ("newer",))
    made.drop("topic/a")
    made.drop("topic/a")
    assert (made.get("topic/a"), made.of_kind("topic"), tuple(made.items())) == (None, (), ())
    assert "topic/a" not in made
