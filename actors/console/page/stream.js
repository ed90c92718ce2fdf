// The WebSocket: subscriptions that survive a lost connection, and a pause.
const FIRST_PAUSE = 500, MOST_PAUSE = 15000;

export class Stream {
  /** state(text) is called with "live", "paused", "connecting" or "lost". */
  constructor(state) {
    this.state = state;
    this.subscriptions = new Map();
    this.number = 0;
    this.paused = false;
    this.pause_ms = FIRST_PAUSE;
    this.connect();
    // A page that nobody sees costs the server nothing.
    document.addEventListener("visibilitychange", () => this.settle());
  }

  get wanted() {
    return !this.paused && document.visibilityState !== "hidden";
  }

  connect() {
    clearTimeout(this.timer);
    this.socket = new WebSocket(new URL("stream", document.baseURI).href.replace(/^http/, "ws"));
    this.socket.onopen = () => {
      this.pause_ms = FIRST_PAUSE;
      this.running = false;
      this.settle();
    };
    this.socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      const found = this.subscriptions.get(frame.id);
      if (found && this.running) found.callback(frame);
    };
    this.socket.onclose = () => {
      this.running = false;
      this.state("lost");
      this.timer = setTimeout(() => this.connect(), this.pause_ms * (0.7 + 0.6 * Math.random()));
      this.pause_ms = Math.min(MOST_PAUSE, this.pause_ms * 2);
    };
  }

  settle() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.wanted !== this.running) {
      this.running = this.wanted;
      for (const [id, each] of this.subscriptions) this.send(id, this.running ? each : null);
    }
    this.state(this.paused ? "paused" : "live");
  }

  send(id, subscription) {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify(subscription ? { id, watch: subscription.source, query: subscription.query } : { id, stop: true }));
  }

  setPaused(paused) {
    this.paused = paused;
    this.settle();
  }

  /** Watch a source. callback gets { at, data } or { at, error }. Returns { update(query), stop() }. */
  watch(source, query, callback) {
    const id = ++this.number;
    const subscription = { source, query, callback };
    this.subscriptions.set(id, subscription);
    if (this.running) this.send(id, subscription);
    return {
      update: (changed) => {
        subscription.query = changed;
        if (this.running) this.send(id, subscription);
        else if (this.paused) fetchSource(source, changed).then(callback);
      },
      stop: () => {
        this.subscriptions.delete(id);
        if (this.running) this.send(id, null);
      },
    };
  }
}

/** Read a source once: { at, data } or { at, error }. */
export async function fetchSource(source, query) {
  const kept = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null);
  try {
    const answer = await fetch(`api/${source}?${new URLSearchParams(kept)}`, { cache: "no-store" });
    return answer.ok ? await answer.json() : { error: (await answer.text()).trim() };
  } catch (error) {
    return { error: `no answer: ${error.message}` };
  }
}
