"""Flask: stream a run to the browser as Server-Sent Events.

    pip install flask
    flask --app examples.flask_sse:create_app run --with-threads
    curl -N -d "question=What is the weather in Paris?" http://127.0.0.1:5000/ask

What is shown may be rejected afterwards.  A browser keeps the text of each step apart and empties it at
every `step-start` and `tripwire` of that step:

    const at = step => out.querySelector(`[data-step="${step}"]`) || add(step);
    on("step-start", data => at(data.step).textContent = "");
    on("text-delta", data => at(data.step).textContent += data.text);
    on("tripwire", data => at(data.step).textContent = "");

A client that goes away cancels its run: the next piece that is sent to it fails, and leaving the stream early stops
the run.  While nothing happens a comment is sent every 15 seconds, so that this is noticed then, too.  What had
finished by then is recorded.  Under gunicorn use gthread or gevent workers: a sync worker is
killed after its --timeout, streaming or not.
"""

import json

from flask import Flask, Response, request

from minagent import Agent, MinagentError, tool

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

#: What a browser is told; everything else (messages, usage, errors' details) stays on this side.
SHOWN = {"text-delta": ("text",), "tool-call": ("tool_name", "args"), "tool-result": ("tool_name", "output"),
         "tool-error": ("tool_name", "error"), "tool-output": ("tool_name", "output"),
         "step-start": ("attempt",)}


@tool(effect="read", examples=[{"city": "Oslo"}])
def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Name of the city.
    """
    return "rain in %s" % city


def create_app(model="local", **options):
    app = Flask(__name__)
    agent = Agent("weather", model=model, tools=[get_weather], **options)

    @app.post("/ask")
    def ask():
        # Options and input are checked here, in the request's own thread: what is wrong with them is still a 400.
        try:
            stream = agent.stream(request.form.get("question", ""), deadline=120)
        except ValueError as error:
            return {"error": str(error)}, 400
        response = Response(events(stream), mimetype="text/event-stream", headers=HEADERS)
        # Called even if the client has left before the first event, when the generator never started.
        response.call_on_close(stream.close)
        return response

    return app


def events(stream):
    """The stream as bytes of Server-Sent Events; ends with `finish`, `abort` or `error`."""
    with stream:
        try:
            for chunk in stream.with_heartbeats(15):
                if chunk is None:  # a comment: it keeps proxies awake, and fails when the client has left
                    yield b": still at work\n\n"
                elif chunk.type in SHOWN:
                    shown = {key: chunk.payload[key] for key in SHOWN[chunk.type]}
                    yield event(chunk.type, dict(shown, step=chunk.step), chunk.seq)
                elif chunk.type == "tripwire":  # the reason is not for the browser: it may quote what was rejected
                    yield event("tripwire", {"step": chunk.step, "retry": chunk.payload["tripwire"].retry}, chunk.seq)
                elif chunk.type == "finish":
                    yield event("finish", {"reason": chunk.payload["output"].finish_reason}, chunk.seq)
                elif chunk.type == "abort":
                    yield event("abort", {"reason": chunk.payload["reason"]}, chunk.seq)
        except MinagentError as error:
            yield event("error", {"error": type(error).__name__, "run_id": error.run_id}, 0)


def event(name, data, seq):
    return ("id: %d\nevent: %s\ndata: %s\n\n" % (seq, name, json.dumps(data))).encode("ascii")


if __name__ == "__main__":
    create_app().run(threaded=True)
