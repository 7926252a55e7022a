"""Partitions: the same key reaches the same one."""

import subprocess
import sys

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.partitions import Partitions, partition_of, partitioned
from actors.runtime.plan import Word
from actors.runtime.specs import ChildSpec
from actors.runtime.supervise import supervise


async def forever():
    await trio.sleep_forever()


@given(st.integers(), st.integers(1, 50))
def test_a_whole_number_goes_by_its_size(key, count):
    assert partition_of(key, count) == abs(key) % count


@given(st.one_of(st.text(), st.binary(), st.tuples(st.text(), st.integers())), st.integers(1, 50))
def test_another_key_goes_to_one_that_exists_each_time(key, count):
    assert 0 <= partition_of(key, count) < count and partition_of(key, count) == partition_of(key, count)


def test_the_partition_of_a_text_is_the_same_in_every_process():
    code = "from actors.runtime.partitions import partition_of as p; print([p(k, 97) for k in ('a', 'b', ('c', 1))])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str([partition_of(key, 97) for key in ("a", "b", ("c", 1))])


async def test_a_key_leads_to_its_partition_and_the_number_may_shrink_to_none_and_grow_back():
    def make(number):
        return supervise([], {"dynamic": True})

    async with open_supervisor([ChildSpec("p", partitioned, (3, make), type="supervisor")]) as top:
        parts = Partitions((await top.which_child("p")).ref, 3)
        refs = [await parts.of(key) for key in (0, 1, 2, -4)]
        assert len(set(refs)) == 3 and refs[3] is refs[1]
        assert (await refs[2].start_child(ChildSpec("a", forever))).word is Word.ok
        await parts.resize(2)
        assert await parts.of(2) is refs[0] and refs[2].exit is not None and refs[1].exit is None
        await parts.resize(0)
        with pytest.raises(ValueError, match="no partition"):
            await parts.of(1)
        with pytest.raises(ValueError, match="from 0 to 3"):
            await parts.resize(4)
        await parts.resize(3)
        assert (await (await parts.of(2)).count_children()).active == 0
