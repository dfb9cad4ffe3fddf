"""One end of a WebRTC call by aiortc, `call.py offer|answer FOLDER SECONDS`: descriptions go by files, speech 50 times a
second each way. Prints what it heard."""

import asyncio
import json
import os
import sys
import time

from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack

# Of a packet of 20 ms, in ticks of 48 kHz.
TICKS = 960


def write(path, description):
    """Writes a description, whole at once."""
    with open(path + ".new", "w") as file:
        json.dump({"type": description.type, "sdp": description.sdp}, file)
    os.rename(path + ".new", path)


async def read(path):
    """The other end's description, once it is there."""
    while not os.path.exists(path):
        await asyncio.sleep(0.05)
    with open(path) as file:
        return RTCSessionDescription(**json.load(file))


async def hear(track, seconds, heard):
    """Listens for so long."""
    stamps, gap = [(await track.recv()).pts], 0.0
    begin = last = time.monotonic()
    while last - begin < seconds:
        stamps.append((await track.recv()).pts)
        gap, last = max(gap, time.monotonic() - last), time.monotonic()
    sent = (stamps[-1] - stamps[0]) // TICKS + 1
    heard.set_result(f"{len(stamps)} of {sent} packets, longest gap {gap * 1000:.0f} ms")


async def main(role, folder, seconds):
    """Makes the call."""
    end, heard = RTCPeerConnection(RTCConfiguration(iceServers=[])), asyncio.get_running_loop().create_future()
    tasks = []
    end.on("track", lambda track: tasks.append(asyncio.ensure_future(hear(track, seconds, heard))))
    end.addTrack(AudioStreamTrack())
    offer, answer = os.path.join(folder, "offer"), os.path.join(folder, "answer")
    if role == "offer":
        await end.setLocalDescription(await end.createOffer())
        write(offer, end.localDescription)
        await end.setRemoteDescription(await read(answer))
    else:
        await end.setRemoteDescription(await read(offer))
        await end.setLocalDescription(await end.createAnswer())
        write(answer, end.localDescription)
    print(await asyncio.wait_for(heard, seconds + 20), flush=True)
    # The other end may hear for a moment more.
    await asyncio.sleep(1)
    await end.close()


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
