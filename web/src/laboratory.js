// The engine in workers: one judges, the others make its runs.

/** The engine's module, from the page: base64 of gzip. */
async function engineModule() {
  const text = atob(document.getElementById('engine').textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

/** A worker that is asked, one question at a time. */
class Hand {
  constructor(module, address) {
    this.module = module;
    this.address = address;
    this.start();
  }

  start() {
    this.waiting = new Map();
    this.next = 0;
    this.prepared = null;
    this.worker = new Worker(this.address);
    this.worker.onmessage = ({ data }) => {
      const asked = this.waiting.get(data.id);
      if (!asked) return;
      this.waiting.delete(data.id);
      if (data.trap) asked.fail(new Error(data.trap));
      else asked.hear(data.answer);
    };
    this.worker.postMessage({ module: this.module });
  }

  get isBusy() {
    return this.waiting.size > 0;
  }

  async ask(question, attached) {
    return JSON.parse(await this.askForText(question, attached));
  }

  /** The answer as text. `attached`: what follows the question's line. */
  askForText(question, attached = '') {
    return new Promise((hear, fail) => {
      this.next += 1;
      this.waiting.set(this.next, { hear, fail });
      this.worker.postMessage({ id: this.next, question: `${JSON.stringify(question)}\n${attached}` });
    });
  }

  /** Ends what it does, and forgets what it was asked. */
  restart() {
    this.worker.terminate();
    const left = [...this.waiting.values()];
    this.start();
    for (const { fail } of left) fail(null);
  }
}

/** How long a worker is busy with one batch of runs, ms: long enough that messages cost nothing, short enough to show progress. */
const BATCH_MS = 80;

/** How often the answer is drawn while runs are made, ms; and at most this share of the time, since the cores have runs to make. */
const LOOK_MS = 350;
const LOOK_SHARE = 0.03;

/** How often progress is told while runs are made, ms: the page is painted each time. */
const TELL_MS = 250;

/**
 * Compares what it is asked. `hear` is told: `refused(errors)`, `begun(summary)`, `answer(document, isFinal)`, `progress(share, state)`
 * and `broke(message)`.
 */
class Laboratory {
  constructor(module, hear, threads = Math.min(16, navigator.hardwareConcurrency || 2)) {
    const address = URL.createObjectURL(new Blob([document.getElementById('worker').textContent], { type: 'text/javascript' }));
    this.judge = new Hand(module, address);
    // For the fields: answers while the judge is busy.
    this.clerk = new Hand(module, address);
    this.runners = Array.from({ length: threads }, () => new Hand(module, address));
    this.hear = hear;
    this.turn = null;
  }

  about() {
    return this.clerk.ask({ call: 'about' });
  }

  async compare(asked) {
    const turn = { asked, waiting: [], batch: 1, stopped: false, ended: false, share: 0, looked: 0, told: -TELL_MS, pause: LOOK_MS, fresh: false };
    this.turn = turn;
    for (const hand of [this.judge, ...this.runners]) if (hand.isBusy) hand.restart();
    try {
      const begun = await this.judge.ask({ call: 'begin', asked });
      if (turn !== this.turn) return;
      if (begun.errors) {
        turn.ended = true;
        this.hear.refused(begun.errors);
        return;
      }
      this.hear.begun(begun);
      await this.refill(turn);
    } catch (trap) {
      this.broke(turn, trap);
    }
  }

  async refill(turn) {
    const jobs = await this.judge.ask({ call: 'jobs' });
    if (turn !== this.turn) return;
    turn.waiting = jobs.map((job, place) => ({ job, place }));
    this.handOut(turn);
  }

  handOut(turn) {
    if (performance.now() - turn.told >= TELL_MS) this.tell(turn);
    for (const runner of this.runners) {
      if (turn.stopped || !turn.waiting.length) return;
      if (!runner.isBusy) this.work(turn, runner);
    }
  }

  async work(turn, runner) {
    // Smaller ones towards the end of a round, for which all wait.
    const share = Math.ceil(turn.waiting.length / this.runners.length / 2);
    const batch = turn.waiting.splice(0, Math.min(turn.batch, share));
    try {
      // Both are asked at once: a worker answers in order.
      const prepared = runner.prepared === turn ? null : runner.ask({ call: 'prepare', asked: turn.asked });
      runner.prepared = turn;
      const began = performance.now();
      const [runs] = await Promise.all([runner.askForText({ call: 'run', jobs: batch.map(({ job }) => job) }), prepared]);
      const each = (performance.now() - began) / batch.length;
      if (turn !== this.turn) return;
      turn.batch = Math.max(1, Math.min(64, Math.round(BATCH_MS / Math.max(each, 0.1))));
      this.handOut(turn);
      const taken = await this.judge.ask({ call: 'take', places: batch.map(({ place }) => place) }, runs);
      if (turn !== this.turn) return;
      turn.share = taken.share;
      turn.fresh = true;
      if (taken.ended) await this.end(turn);
      else if (taken.next) await this.refill(turn);
      else this.look(turn);
    } catch (trap) {
      // Stopped in the middle: these are made again.
      if (trap === null && turn === this.turn) turn.waiting.unshift(...batch);
      else this.broke(turn, trap);
    }
  }

  /** Draws what is known, now and then. */
  async look(turn) {
    if (!turn.fresh || turn.looking || performance.now() - turn.looked < turn.pause) return;
    Object.assign(turn, { fresh: false, looking: true });
    const began = performance.now();
    let answer;
    try {
      answer = await this.judge.ask({ call: 'look' });
    } catch (trap) {
      this.broke(turn, trap);
      return;
    }
    turn.looking = false;
    if (turn !== this.turn || turn.ended) return;
    this.hear.answer(answer, false);
    turn.looked = performance.now();
    turn.pause = Math.max(LOOK_MS, (turn.looked - began) / LOOK_SHARE);
    this.tell(turn);
  }

  async end(turn) {
    turn.ended = true;
    const answer = await this.judge.ask({ call: 'look' });
    if (turn !== this.turn) return;
    this.hear.answer(answer, true);
    this.tell(turn);
    const traced = await this.judge.ask({ call: 'trace' });
    if (turn === this.turn) this.hear.answer(traced, true);
  }

  /** Stops, or goes on. */
  toggle() {
    const { turn } = this;
    if (!turn || turn.ended) return;
    turn.stopped = !turn.stopped;
    if (turn.stopped) for (const runner of this.runners) if (runner.isBusy) runner.restart();
    turn.looked = 0;
    this.tell(turn);
    this.handOut(turn);
    this.look(turn);
  }

  tell(turn) {
    turn.told = performance.now();
    this.hear.progress(turn.share, turn.ended ? 'ended' : turn.stopped ? 'stopped' : 'running');
  }

  broke(turn, trap) {
    if (trap === null || turn !== this.turn) return;
    turn.ended = true;
    // Their engines can't be used any more.
    for (const hand of [this.judge, ...this.runners]) hand.restart();
    this.hear.broke(trap.message);
    this.tell(turn);
  }
}
