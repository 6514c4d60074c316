"""What tests of writes put in the place of the world: a store that answers when told, time that moves when told."""

import asyncio
import itertools

NOW = 1_000.0
HARD, TTL, SOFT = 60.0, 300.0, 5.0
FAR = NOW + 100_000


class FakeTime:
    """Time that stands still until a test moves it."""

    def __init__(self):
        self.now = NOW
        self._order = itertools.count()
        self.timers = {}

    def clock(self):
        return self.now

    def call_later(self, seconds, callback):
        timer = FakeTimer(self, (self.now + seconds, next(self._order)))
        self.timers[timer] = callback
        return timer

    def move(self, seconds):
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.when[0] <= end]:
            timer = min(due, key=lambda timer: timer.when)
            self.now = max(self.now, timer.when[0])
            self.timers.pop(timer)()
        self.now = end


class FakeTimer:
    def __init__(self, time, when):
        self.time = time
        self.when = when

    def cancel(self):
        self.time.timers.pop(self, None)


class Script:
    """A store whose writes end when a test says so."""

    def __init__(self):
        self.attempts = []

    async def write(self):
        attempt = asyncio.get_running_loop().create_future()
        self.attempts.append(attempt)
        await attempt

    async def land(self):
        await calm()
        self.attempts[-1].set_result(None)
        await calm()

    async def fail(self, error=None):
        await calm()
        self.attempts[-1].set_exception(error or OSError("the disk is full"))
        await calm()


class Model:
    """A model that counts how often, and how, it was let go of."""

    def __init__(self):
        self.releases = []
        self.settled = 0

    def release(self, wedged):
        self.releases.append(wedged)

    def settle(self):
        self.settled += 1


async def calm():
    """Let every task and callback that is ready run."""
    for _ in range(6):
        await asyncio.sleep(0)


def begin(writes, script, response_id="resp_1", expires_at=FAR, model=None):
    writes.reserve(response_id, expires_at)
    return writes.start(response_id, script.write, model, model and model.settle)


def holds_nothing(writes, time):
    return not (writes.known or writes.markers or writes.failed or writes.running or time.timers or writes.held)


def raising(error):
    def attempt():
        raise error

    return attempt


def wedge(writes, script, time, response_id="resp_1", **changes):
    write = begin(writes, script, response_id, **changes)
    time.move(writes.hard_timeout)
    return write
