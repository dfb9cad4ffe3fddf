// One worker of the playground: the engine, asked with JSON and answering with JSON.
'use strict';

let engine;
/** The engine, once it is there: questions may come before it is. */
let starting;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** What the engine has written last. */
function written(length) {
  return decoder.decode(new Uint8Array(engine.memory.buffer, engine.output(), length));
}

onmessage = async ({ data }) => {
  if (data.module) {
    starting = WebAssembly.instantiate(data.module, {});
    engine = (await starting).exports;
    postMessage({ ready: true });
    return;
  }
  try {
    await starting;
    const question = encoder.encode(data.question);
    const room = engine.input(question.length);
    new Uint8Array(engine.memory.buffer, room, question.length).set(question);
    postMessage({ id: data.id, answer: written(engine.answer()) });
  } catch (error) {
    // A panic, which ends this worker's engine: its message is the last that it wrote.
    let why = String(error);
    try { why = written(engine.said()) || why; } catch { /* the engine says nothing any more */ }
    postMessage({ id: data.id, trap: why });
  }
};
