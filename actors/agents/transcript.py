"""What a model reads of its own run so far, and whether the run goes in circles. Pure.

One place folds a step, whether it has just been done or was committed by a
process that is gone: so a run that goes on asks the very questions that it would
have asked without the interruption.
"""

from collections.abc import Sequence

import attrs

from actors.agents.contract import StallPolicy
from actors.agents.fitting import Fitting
from actors.agents.ports import AssistantTurn, Completion, Observation, ResultsTurn, UserTurn
from actors.agents.prompt import CUT, QUIET
from actors.agents.stall import Signature, StallState, look
from actors.agents.step_rows import calls_text
from actors.agents.turns import UNFINISHED

# An answer that was cut at its limit is asked to go on so often; then what there is counts.
CUT_RETRIES = 1


class Transcript:
    """What the model of one agent reads, its stall window, and how often its last answers were cut in a row.

    ``stall`` None looks for no circles: single-file work only repeats.
    """

    def __init__(self, first: UserTurn, stall: StallPolicy | None) -> None:
        self.read = Fitting([first])
        self.window = StallState()
        self._policy = stall
        self._cuts = 0

    def fold_late(self, late: Sequence[Observation]) -> None:
        """Add the reports of children that ended in the background to the last that the model reads."""
        if not late:
            return
        last, reports = self.read.last, [seen.text for seen in late]
        if isinstance(last, ResultsTurn):
            self.read.put_last(ResultsTurn((*last.texts[:-1], "\n\n".join([last.texts[-1], *reports]))))
        else:
            assert isinstance(last, UserTurn), "a step ends with what the model reads next"
            self.read.put_last(attrs.evolve(last, text="\n\n".join([last.text, *reports])))

    def fold(self, answer: Completion, late: Sequence[Observation], seen: Sequence[Observation]) -> bool:
        """Add a whole step to what the model will read next; tell whether the agent is stalled."""
        note, stalled = self._look(answer, (*late, *seen))
        self.read.append(AssistantTurn(answer.text, answer.calls))
        texts = [each.text for each in seen]
        if note is not None and texts:
            texts[-1] = f"{texts[-1]}\n\n{note}"
        if answer.calls:
            self.read.append(ResultsTurn(tuple(texts)))
        else:
            cut = answer.finish_reason in UNFINISHED
            self.read.append(UserTurn(CUT if cut else QUIET))
        return stalled

    def unfinished(self, answer: Completion) -> bool:
        """Tell whether an answer is asked to go on, and count it. Once for each step, in order."""
        unfinished = answer.finish_reason in UNFINISHED and self._cuts < CUT_RETRIES
        self._cuts = self._cuts + 1 if unfinished and not answer.calls else 0
        return unfinished

    def begin_anew(self) -> None:
        """Forget circles so far: whoever reopens a run lets it try again."""
        self.window = StallState()

    def _look(self, answer: Completion, seen: Sequence[Observation]) -> tuple[str | None, bool]:
        if self._policy is None:
            return None, False
        step = Signature(calls_text(answer), any(each.changed for each in seen))
        verdict = look(self.window, step, window=self._policy.window, max_replans=self._policy.max_replans)
        self.window = verdict.state
        return verdict.note, verdict.stalled
