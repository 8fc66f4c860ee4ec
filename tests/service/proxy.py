"""A TCP proxy that breaks connections: put between two roles of the service, it drops, resets, half-closes,
delays, throttles, stalls, damages or swallows what goes through. No privileges needed. One thread with an
event loop carries all proxies of a Network.

    with Network() as network:
        link = network.proxy("client-dispatcher", target="127.0.0.1:5050")
        ... connect to link.address ...
        link.reset()                  # the connections there are
        link.throttle(100_000)        # bytes/s, from now on; None: as fast as it goes
        link.black_hole(True)         # everything is accepted, nothing goes through

What happens to connections there are happens at once; delay, throttle, stall and black_hole hold for later
ones too. A connection that was swallowed once never carries anything again: bytes are missing."""

import asyncio
import contextlib
import random
import socket
import struct
import threading

UP, DOWN, BOTH = "up", "down", "both"  # from who connected to the target, and back
CHUNK = 1 << 16
CALL_S = 900  # the loop's thread answers at once, unless it is stuck, on however slow a machine


class Connection:
    """Two directions, each a task that carries bytes."""

    def __init__(self, proxy, near, far):
        self.proxy, self.near, self.far = proxy, near, far  # (reader, writer) each
        self.swallowed = False
        self.damage = {UP: False, DOWN: False}
        self.ended = {UP: False, DOWN: False}

    async def carry(self, direction):
        reader, writer = (self.near[0], self.far[1]) if direction == UP else (self.far[0], self.near[1])
        try:
            while data := await reader.read(self.proxy.chunk()):
                data = await self.proxy.hold(self, data)
                if self.swallowed or self.ended[direction]:
                    continue
                if self.damage[direction]:
                    self.damage[direction] = False
                    at = self.proxy.draw.randrange(len(data))
                    data = data[:at] + bytes([data[at] ^ 1 << self.proxy.draw.randrange(8)]) + data[at + 1 :]
                self.proxy.carried[direction] += len(data)
                writer.write(data)
                await writer.drain()
            self.end(direction)
        except OSError:
            self.close()

    def end(self, direction):
        """Who receives in this direction sees the end of it; the other direction goes on."""
        self.ended[direction] = True
        writer = self.far[1] if direction == UP else self.near[1]
        if not self.swallowed and not writer.is_closing():
            with contextlib.suppress(OSError):  # it was reset, which is only not seen yet
                writer.write_eof()

    def close(self):
        for _, writer in (self.near, self.far):
            writer.close()

    def reset(self):
        """Both see a reset: with a linger time of 0 a close says RST instead of FIN."""
        for _, writer in (self.near, self.far):
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def run(self):
        try:
            await asyncio.gather(self.carry(UP), self.carry(DOWN))
        finally:
            self.close()


class Proxy:
    """One listening port on loopback. Made by Network.proxy; its methods may be called by any thread."""

    def __init__(self, network, name, target, seed):
        self.network, self.name, self.target = network, name, target
        self.draw = random.Random(f"{seed}/{name}")
        self.delay_s, self.rate, self.swallowing, self.refusing = 0.0, None, False, False
        self.flowing = asyncio.Event()
        self.connections, self.tasks = set(), set()
        self.carried = {UP: 0, DOWN: 0}
        self.accepted = 0
        self.server = None
        self.address = None

    # ---- any thread ----

    def aim(self, target):
        """New connections go to this address, HOST:PORT or None: nobody is there."""
        self._call(lambda: setattr(self, "target", target))

    def drop(self):
        return self._each(Connection.close)

    def reset(self):
        return self._each(Connection.reset)

    def half_close(self, direction=UP):
        return self._each(lambda c: c.end(direction))

    def damage(self, direction=DOWN):
        """A bit of what comes next is turned over."""
        return self._each(lambda c: c.damage.__setitem__(direction, True))

    def delay(self, seconds):
        self._call(lambda: setattr(self, "delay_s", seconds))

    def throttle(self, bytes_per_s):
        self._call(lambda: setattr(self, "rate", bytes_per_s))

    def stall(self, on):
        """Nothing goes through while it is on; nothing is lost."""
        self._call(self.flowing.clear if on else self.flowing.set)

    def black_hole(self, on):
        def change():
            self.swallowing = on
            for c in self.connections if on else ():
                c.swallowed = True
            return len(self.connections)

        return self._call(change)

    def refuse(self, on):
        """Connections are ended as soon as they are accepted."""
        self._call(lambda: setattr(self, "refusing", on))

    def heal(self):
        """Whatever was on is off. Connections that lost bytes are ended."""

        def change():
            self.delay_s, self.rate, self.swallowing, self.refusing = 0.0, None, False, False
            self.flowing.set()
            for c in [c for c in self.connections if c.swallowed]:
                c.close()

        self._call(change)

    @property
    def n_connections(self):
        return len(self.connections)

    # ---- the loop's thread ----

    def _call(self, function):
        return self.network.call(function)

    def _each(self, function):
        """How many it happened to."""

        def change():
            there = list(self.connections)
            for c in there:
                function(c)
            return len(there)

        return self._call(change)

    def chunk(self):
        return CHUNK if self.rate is None else max(1, min(CHUNK, int(self.rate / 20)))

    async def hold(self, connection, data):
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.rate is not None:
            await asyncio.sleep(len(data) / self.rate)
        if not connection.swallowed:
            await self.flowing.wait()
        return data

    async def listen(self):
        self.flowing.set()
        self.server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = "%s:%d" % self.server.sockets[0].getsockname()[:2]

    async def _accepted(self, reader, writer):
        self.accepted += 1
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            far = await self._far(reader, writer)
            if far is None:
                return
            connection = Connection(self, (reader, writer), far)
            connection.swallowed = self.swallowing
            self.connections.add(connection)
            try:
                await connection.run()
            finally:
                self.connections.discard(connection)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.tasks.discard(task)

    async def _far(self, reader, writer):
        """A connection to the target; None: there is none, and the near one is to be ended."""
        if self.swallowing:  # accepted, and that is all
            while self.swallowing and await reader.read(CHUNK):
                pass
            return None
        if self.target is None or self.refusing:
            return None
        host, port = self.target.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))

    async def close(self):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Network:
    """The proxies of a test, and the thread that runs them."""

    def __init__(self, seed=0):
        self.seed = seed
        self.proxies = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="proxies", daemon=True)
        self.thread.start()

    def call(self, function):
        """Runs a function on the loop's thread."""

        async def run():
            return function()

        return self.wait(run())

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(CALL_S)

    def proxy(self, name, target=None):
        p = Proxy(self, name, target, self.seed)
        self.wait(p.listen())
        self.proxies.append(p)
        return p

    def close(self):
        for p in self.proxies:
            self.wait(p.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(CALL_S)
        self.loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
