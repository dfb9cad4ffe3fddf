# ruff: noqa: D103
"""What programs do with a connection, case by case: a server and its client, for packaging/peers.

    peer_cases.py serve PORT CERTIFICATE KEY       a server; TLS at the next port
    peer_cases.py run HOST PORT [CASE ...]         the client; a line for each case, and exit code 1 if one fails

The client's first line names the case. Each case is written once, as what the client does and what the server does.
"""

import concurrent.futures
import hashlib
import os
import random
import select
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time

MIB = 1 << 20
DATA = random.Random(40).randbytes(4 * MIB)
DIGEST = hashlib.sha256(DATA).hexdigest().encode()
PATIENCE = 60
# What each case is called: what the client does, what the server does.
CASES = {}
# What clients saw, by the case's number, where the server has to say it.
SEEN = {}


def case(client):
    """A case of the client's; the server's side has the same name and `_served`."""
    CASES[client.__name__.replace("_", " ")] = client
    return client


def exactly(one, length):
    """As many bytes as asked."""
    data = bytearray()
    while len(data) < length:
        piece = one.recv(min(length - len(data), 1 << 18))
        if not piece:
            raise OSError(f"ended after {len(data)} of {length} bytes")
        data += piece
    return bytes(data)


def everything(one):
    """All bytes until the end."""
    data = bytearray()
    while piece := one.recv(1 << 18):
        data += piece
    return bytes(data)


def check(found, wanted):
    """Compares what came."""
    if found != wanted:
        shown = [one if len(one) < 100 else f"{len(one)} bytes" for one in (found, wanted)]
        raise OSError(f"{shown[0]} in place of {shown[1]}")


def reset(one):
    """Ends a connection by a reset."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def ends_early(act):
    """Whether a connection fails, or ends; in time."""
    try:
        act()
    except (ConnectionError, BrokenPipeError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        return True
    return False


class Server:
    """The server's side of each case: `self.NAME(connection)`."""

    def echo(self, one):
        """Sends back what comes."""
        while piece := one.recv(1 << 16):
            one.sendall(piece)

    def answer(self, one):
        """Sends all after a byte of question."""
        exactly(one, 1)
        one.sendall(DATA)

    def digest(self, one):
        """Reads all, and tells its digest."""
        one.sendall(hashlib.sha256(everything(one)).hexdigest().encode())

    def both(self, one):
        """Sends and reads at once."""
        writer = threading.Thread(target=lambda: (one.sendall(DATA), one.shutdown(socket.SHUT_WR)))
        writer.start()
        check(hashlib.sha256(everything(one)).hexdigest().encode(), DIGEST)
        writer.join()

    def first(self, one):
        """Speaks first, half-closes, and reads on; what came is asked for by another connection."""
        one.sendall(b"hello")
        one.shutdown(socket.SHUT_WR)
        number = exactly(one, 8)
        SEEN[number] = hashlib.sha256(everything(one)).hexdigest().encode()

    def seen(self, one):
        """What another connection saw."""
        number, begin = exactly(one, 8), time.monotonic()
        while number not in SEEN and time.monotonic() - begin < 20:
            time.sleep(0.02)
        one.sendall(SEEN.get(number, b"nothing"))

    def reset_by_client(self, one):
        """Whether the client's reset is seen, in the middle of data both ways."""
        number = exactly(one, 8)
        SEEN[number] = b"reset" if ends_early(lambda: (one.sendall(DATA[:100000]), everything(one))) else b"end"

    def reset_by_server(self, one):
        """Resets in the middle of an answer."""
        exactly(one, 1)
        one.sendall(DATA[:300000])
        # What was acknowledged arrives before the reset; the rest may not.
        time.sleep(0.3)
        reset(one)

    def reset_under_upload(self, one):
        """Resets in the middle of an upload."""
        exactly(one, 100000)
        reset(one)

    def unread(self, one):
        """Closes while data waits that it hasn't read."""
        exactly(one, 1)
        one.sendall(b"bye")
        time.sleep(0.5)

    def silent(self, one):
        """Closes without a word."""

    def later(self, one):
        """Answers after a while."""
        exactly(one, 1)
        time.sleep(4)
        one.sendall(b"now")

    def drip(self, one):
        """Sends little by little."""
        exactly(one, 1)
        for at in range(200):
            one.sendall(DATA[at : at + 1])
            time.sleep(0.005)

    def from_file(self, one):
        """Sends a file by sendfile."""
        exactly(one, 1)
        with tempfile.TemporaryFile() as file:
            file.write(DATA)
            file.flush()
            one.sendfile(file)

    def lingering(self, one):
        """Closes with SO_LINGER, with data under way."""
        exactly(one, 1)
        one.sendall(DATA[:MIB])
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))


# OpenSSL's SSL_OP_ENABLE_KTLS, which Python has a name for since 3.12: where the kernel has it and the socket takes it.
KERNEL_TLS = 1 << 3


class Client:
    """Opens connections to the server, each for a side of it."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self, way, options=()):
        """A connection; the server does what `way` says."""
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        one.settimeout(PATIENCE)
        for level, name, value in options:
            one.setsockopt(level, name, value)
        one.connect((self.host, self.port))
        one.sendall(f"{way}\n".encode())
        return one

    def tls(self, way, version=ssl.TLSVersion.TLSv1_3):
        """The same by TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.options |= KERNEL_TLS
        context.minimum_version = context.maximum_version = version
        one = context.wrap_socket(socket.create_connection((self.host, self.port + 1), PATIENCE))
        one.sendall(f"{way}\n".encode())
        return one

    def seen(self, number):
        """What the server saw of a connection."""
        with self.open("seen") as one:
            one.sendall(number)
            return everything(one)


@case
def one_byte_and_back(client):
    with client.open("echo") as one:
        one.sendall(b"x")
        check(exactly(one, 1), b"x")


@case
def a_question_and_a_long_answer(client):
    with client.open("answer") as one:
        one.sendall(b"x")
        check(everything(one), DATA)


@case
def an_upload_and_its_digest(client):
    with client.open("digest") as one:
        one.sendall(DATA)
        one.shutdown(socket.SHUT_WR)
        check(everything(one), DIGEST)


@case
def both_ways_at_once(client):
    with client.open("both") as one:
        writer = threading.Thread(target=lambda: (one.sendall(DATA), one.shutdown(socket.SHUT_WR)))
        writer.start()
        check(everything(one), DATA)
        writer.join()


@case
def the_client_half_closes_at_once(client):
    with client.open("digest") as one:
        one.shutdown(socket.SHUT_WR)
        check(everything(one), hashlib.sha256(b"").hexdigest().encode())


@case
def the_server_speaks_first_and_half_closes(client):
    number = os.urandom(8)
    with client.open("first") as one:
        check(everything(one), b"hello")
        one.sendall(number + DATA)
        one.shutdown(socket.SHUT_WR)
    check(client.seen(number), DIGEST)


@case
def the_client_resets(client):
    number = os.urandom(8)
    one = client.open("reset_by_client")
    one.sendall(number)
    exactly(one, 1000)
    reset(one)
    check(client.seen(number), b"reset")


@case
def the_client_resets_under_an_upload(client):
    number = os.urandom(8)
    one = client.open("reset_by_client")
    one.sendall(number + DATA[:200000])
    exactly(one, 1000)
    reset(one)
    check(client.seen(number), b"reset")


@case
def the_server_resets(client):
    with client.open("reset_by_server") as one:
        one.sendall(b"x")
        check(exactly(one, 100000), DATA[:100000])
        if not ends_early(lambda: everything(one)):
            raise OSError("the end in place of a reset")


@case
def the_server_resets_under_an_upload(client):
    with client.open("reset_under_upload") as one:
        if not ends_early(lambda: [one.sendall(DATA) for _ in range(20)]):
            raise OSError("no reset was seen")


@case
def the_server_closes_with_unread_data(client):
    with client.open("unread") as one:
        one.sendall(DATA[:100000])
        ends_early(lambda: everything(one))


@case
def the_client_closes_without_a_word(client):
    for _ in range(10):
        socket.create_connection((client.host, client.port), PATIENCE).close()


@case
def the_server_closes_without_a_word(client):
    with client.open("silent") as one:
        check(everything(one), b"")


@case
def both_close_at_once(client):
    for _ in range(20):
        with client.open("silent") as one:
            ends_early(lambda one=one: one.shutdown(socket.SHUT_WR))


@case
def a_long_poll(client):
    with client.open("later") as one:
        one.sendall(b"x")
        check(everything(one), b"now")


@case
def an_idle_connection_speaks_again(client):
    with client.open("echo") as one:
        for text in (b"before", b"after"):
            one.sendall(text)
            check(exactly(one, len(text)), text)
            time.sleep(5)


@case
def a_byte_at_a_time(client):
    with client.open("echo") as one:
        for at in range(2000):
            one.sendall(DATA[at : at + 1])
        check(exactly(one, 2000), DATA[:2000])


@case
def a_byte_at_a_time_without_nagle(client):
    with client.open("echo", [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]) as one:
        for at in range(300):
            one.sendall(DATA[at : at + 1])
            check(exactly(one, 1), DATA[at : at + 1])


@case
def the_server_drips(client):
    with client.open("drip") as one:
        one.sendall(b"x")
        check(everything(one), DATA[:200])


@case
def a_slow_reader(client):
    with client.open("answer") as one:
        one.sendall(b"x")
        data = bytearray()
        while piece := one.recv(1 << 16):
            data += piece
            time.sleep(0.03)
        check(bytes(data), DATA)


@case
def a_reader_that_pauses(client):
    with client.open("answer") as one:
        one.sendall(b"x")
        time.sleep(3)
        check(everything(one), DATA)


@case
def a_small_receive_buffer(client):
    with client.open("answer", [(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)]) as one:
        one.sendall(b"x")
        check(everything(one), DATA)


@case
def a_small_send_buffer(client):
    with client.open("digest", [(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 10)]) as one:
        one.sendall(DATA)
        one.shutdown(socket.SHUT_WR)
        check(everything(one), DIGEST)


@case
def sendfile_from_the_server(client):
    with client.open("from_file") as one:
        one.sendall(b"x")
        check(everything(one), DATA)


@case
def sendfile_from_the_client(client):
    with client.open("digest") as one, tempfile.TemporaryFile() as file:
        file.write(DATA)
        file.flush()
        one.sendfile(file)
        one.shutdown(socket.SHUT_WR)
        check(everything(one), DIGEST)


@case
def many_pieces_at_once(client):
    with client.open("digest") as one:
        at = 0
        while at < MIB:
            at += one.sendmsg([DATA[at + n * 1000 : at + (n + 1) * 1000] for n in range(50) if at + n * 1000 < MIB][:50])
        rest = DATA[at:]
        one.sendall(rest)
        one.shutdown(socket.SHUT_WR)
        check(everything(one), DIGEST)


@case
def more_is_said_to_come(client):
    with client.open("digest") as one:
        for at in range(0, 200000, 1000):
            one.send(DATA[at : at + 1000], socket.MSG_MORE)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        one.sendall(DATA[200000:])
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        one.shutdown(socket.SHUT_WR)
        check(everything(one), DIGEST)


@case
def keep_alive_probes(client):
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)]
    with client.open("later", [*options, (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)]) as one:
        one.sendall(b"x")
        check(everything(one), b"now")


@case
def the_server_lingers(client):
    with client.open("lingering") as one:
        one.sendall(b"x")
        time.sleep(1)
        check(everything(one), DATA[:MIB])


@case
def peek_and_wait_for_all(client):
    with client.open("answer") as one:
        one.sendall(b"x")
        check(one.recv(5, socket.MSG_PEEK), DATA[:5])
        one.settimeout(None)
        check(one.recv(200000, socket.MSG_WAITALL), DATA[:200000])
        one.settimeout(PATIENCE)
        check(everything(one), DATA[200000:])


@case
def poll_and_no_blocking(client):
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.setblocking(False)
    one.connect_ex((client.host, client.port))
    poll = select.poll()
    poll.register(one, select.POLLOUT)
    poll.poll(10000)
    left, data = b"both\n" + DATA, bytearray()
    begin = time.monotonic()
    with one:
        poll.modify(one, select.POLLIN | select.POLLOUT)
        while len(data) < len(DATA):
            if time.monotonic() - begin > PATIENCE:
                raise OSError(f"{len(data)} bytes in time, {len(left)} to send")
            for _, what in poll.poll(1000):
                if what & select.POLLOUT and left:
                    left = left[one.send(left[: 1 << 16]) :]
                    if not left:
                        one.shutdown(socket.SHUT_WR)
                        poll.modify(one, select.POLLIN)
                if what & select.POLLIN:
                    data += one.recv(1 << 16)
    check(bytes(data), DATA)


@case
def two_hundred_one_after_the_other(client):
    for _ in range(200):
        one_byte_and_back(client)


@case
def a_hundred_at_once(client):
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        list(pool.map(lambda _: one_byte_and_back(client), range(200)))


@case
def a_hundred_that_wait(client):
    all_of_them = [client.open("echo") for _ in range(100)]
    for turn in range(2):
        for one in all_of_them:
            one.sendall(b"%d" % turn)
        for one in all_of_them:
            check(exactly(one, 1), b"%d" % turn)
    for one in all_of_them:
        one.close()


@case
def ten_downloads_at_once(client):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: a_question_and_a_long_answer(client), range(10)))


@case
def nobody_listens(client):
    other = Client(client.host, client.port + 2)
    if not ends_early(lambda: everything(other.open("echo"))):
        raise OSError("somebody listens")


@case
def tls(client):
    with client.tls("echo") as one:
        one.sendall(DATA[:50000])
        check(exactly(one, 50000), DATA[:50000])
    with client.tls("answer") as one:
        one.sendall(b"x")
        check(everything(one), DATA)


@case
def tls_1_2(client):
    with client.tls("answer", ssl.TLSVersion.TLSv1_2) as one:
        one.sendall(b"x")
        check(everything(one), DATA)


@case
def tls_ends_in_good_order(client):
    with client.tls("echo") as one:
        one.sendall(b"x")
        check(exactly(one, 1), b"x")
        one.unwrap().close()


def serve(port, certificate, key):
    """Serves until it is killed."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.options |= KERNEL_TLS
    server = Server()

    def one_connection(one, by_tls):
        try:
            one.settimeout(PATIENCE)
            if by_tls:
                one = context.wrap_socket(one, server_side=True)
            way = bytearray()
            while not way.endswith(b"\n"):
                way += exactly(one, 1)
            with one:
                getattr(server, way.decode().strip())(one)
                if by_tls:
                    one.unwrap().close()
        except (OSError, ssl.SSLError):
            one.close()

    def listen(port, by_tls):
        with socket.create_server(("0.0.0.0", port), backlog=1000) as listener:
            while True:
                one, _ = listener.accept()
                threading.Thread(target=one_connection, args=(one, by_tls), daemon=True).start()

    threading.Thread(target=listen, args=(port + 1, True), daemon=True).start()
    listen(port, False)


def run(host, port, names):
    """Runs the cases; whether all went well."""
    failed = 0
    for name, act in CASES.items():
        if names and name not in names:
            continue
        begin = time.monotonic()
        try:
            act(Client(host, port))
            found = "ok"
        except Exception as error:  # whatever it is, the others are still of interest
            found, failed = f"FAILED: {type(error).__name__}: {error}", failed + 1
        print(f"{name}: {found} ({time.monotonic() - begin:.1f} s)", flush=True)
    return failed == 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), *sys.argv[3:5])
    else:
        sys.exit(not run(sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
