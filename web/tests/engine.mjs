// The page's own engine in a worker of the test's: what both browsers evaluate in the page.

/** The answers to questions, each a line of JSON. It stands alone: a browser gets its text. */
export async function askEngine(questions) {
  const packed = Uint8Array.from(atob(document.getElementById('engine').textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const module = await WebAssembly.compile(await new Response(stream).arrayBuffer());
  const worker = new Worker(URL.createObjectURL(new Blob([document.getElementById('worker').textContent])));
  worker.postMessage({ module });
  const answers = [];
  await new Promise((end, fail) => {
    worker.onmessage = ({ data }) => {
      if (data.trap) fail(new Error(`${data.trap} in ${questions[data.id]}`));
      if (data.id !== undefined) answers.push(data.answer);
      if (answers.length === questions.length) end();
    };
    questions.forEach((question, id) => worker.postMessage({ id, question }));
  });
  worker.terminate();
  return answers;
}
