"""Keys that hold for one request: they go out with it, and are written down nowhere."""

import json

import pytest

from minagent import Agent, Approve, tool
from minagent.errors import ResumeMismatch
from minagent.runs import JsonFileRuns
from minagent.testing import ScriptedModel, calls, says

KEYS = {"api_key": "sk-tenant-7", "headers": {"X-Tenant": "secret-7"}, "store": False}


@tool(require_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return "refunded %d" % order


def agent(tmp_path, **options):
    model = ScriptedModel([calls("refund", order=7), says("Done.")], by_step=True)
    return Agent("support", model=model, tools=[refund], runs=JsonFileRuns(tmp_path / "runs"), **options), model


def written(tmp_path):
    """All that is on disk."""
    return b"".join(path.read_bytes() for path in sorted((tmp_path / "runs").rglob("*")) if path.is_file())


def test_a_request_s_key_goes_out_and_is_written_nowhere(tmp_path):
    """api_key and headers of provider_options reach the model, and neither journal, blobs nor run.json."""
    support, model = agent(tmp_path)

    out = support.generate("Refund order 7", provider_options=KEYS)

    assert model.requests[0].frame.settings["provider_options"] == KEYS
    assert b"sk-tenant-7" not in written(tmp_path) and b"secret-7" not in written(tmp_path)
    assert b'"store":false' in written(tmp_path)
    assert "sk-tenant-7" not in json.dumps(out.to_dict())


def test_a_key_of_the_call_must_be_given_again(tmp_path):
    """A resume without the key that the call gave is refused; with it, the key goes out again."""
    support, model = agent(tmp_path)
    out = support.generate("Refund order 7", provider_options=KEYS)

    with pytest.raises(ResumeMismatch, match="provider_options="):
        support.resume(out.run_id, Approve())
    done = support.resume(out.run_id, Approve(), provider_options={"api_key": "sk-new", "headers": {}})

    assert done.text == "Done."
    assert model.requests[1].frame.settings["provider_options"] == {"store": False, "api_key": "sk-new", "headers": {}}


def test_a_key_of_the_agent_need_not_be_given_again(tmp_path):
    """A resume takes the agent's own key."""
    support, model = agent(tmp_path, provider_options=KEYS)
    out = support.generate("Refund order 7")

    assert support.resume(out.run_id, Approve()).text == "Done."
    assert model.requests[1].frame.settings["provider_options"] == KEYS
    assert b"sk-tenant-7" not in written(tmp_path)
