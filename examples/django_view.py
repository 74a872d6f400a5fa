"""Django: an agent in an ordinary view, in one file.

    pip install django
    python examples/django_view.py runserver --noreload
    curl -d "question=Add 17 and 25." http://127.0.0.1:8000/ask

A lone tool call runs in the thread of the request, so that it sees the view's database transaction.  Parallel
calls run in threads of their own, which have their own connections: ``Agent(thread_wrapper=close_connections)``
closes those, and ``tool_concurrency=1`` does without threads.
"""

import sys

from django.conf import settings
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from minagent import Agent, tool
from minagent.errors import ConfigError, ModelError


def close_connections(work):
    """Run round the work of every thread that is made for tools."""
    from django.db import connections

    try:
        work()
    finally:
        connections.close_all()


@tool(effect="read", examples=[{"a": 2, "b": 3}])
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


#: Made once: an agent holds nothing of a run and is shared by all threads.
agent = Agent("django", model="local", tools=[add], thread_wrapper=close_connections)


@csrf_exempt
@require_POST
def ask(request):
    try:
        # The deadline lies below the web server's own limit for a request.  It stops model calls and tools with a
        # timeout; a lone tool without one runs in this thread and must look at ctx.cancelled or ctx.remaining() itself.
        out = agent.generate(request.POST.get("question", ""), deadline=25)
    except ConfigError as error:
        return JsonResponse({"error": str(error)}, status=400)
    except ModelError as error:
        return JsonResponse({"error": type(error).__name__, "run_id": error.run_id}, status=503)
    return JsonResponse({"text": out.text, "finish_reason": out.finish_reason, "run_id": out.run_id})


urlpatterns = [path("ask", ask)]


def configure():
    """Settings for this one file; a project has its own."""
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="only for this example", ALLOWED_HOSTS=["127.0.0.1"],
                           USE_TZ=True)


if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    configure()
    execute_from_command_line(sys.argv)
