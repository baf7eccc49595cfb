// Shows the proof of a card (signed grade of an endpoint) in a page. A reader loads this module with the button of an
// endpoint's page, or has it in a saved page. The module shows the steps of the proof in the element with `data-prove`.
// From the rest of the page it reads only the letter and the sentence that it compares with the proven card. Text that
// comes from the service is set as text content, never as HTML.
import { base64, fromBase64 } from "../client/bytes.ts";
import { proveCard, STEPS } from "./steps.ts";

export { proveCard, STEPS };

const SCHEMAS = { bundle: "svc.card.bundle.v1", proof: "svc.card.proof.v1" };
const DAY_H = 24;
/** Longest answer to GET /v1/trust/{id}/proof, bytes. */
const MAX_PROOF = 4 * 1024 * 1024;
/** Longest saved file that is read, bytes. */
const MAX_SAVED = 256 * 1024 * 1024;
/** Largest sum of the objects that are kept to be saved as one file, bytes. */
const MAX_KEPT = 96 * 1024 * 1024;
const TIMEOUT_MS = 60_000;
/** Largest number of requests for one object, if the service answers 429 or 503. */
const TRIES = 4;
/** Longest pause between two requests for one object, s. */
const MAX_PAUSE_S = 60;

const WORDS = { running: "looking", shown: "shown", failed: "fails", open: "not shown here" };
const MARKS = { running: "…", shown: "✓", failed: "✗", open: "–" };

/** Returns an element with these properties and children. */
function make(tag, properties = {}, ...children) {
  const { dataset = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, dataset);
  element.append(...children);
  return element;
}

/** Texts stored in this browser, if it allows pages to store any. */
const storedTexts = {
  read(name) {
    try {
      return localStorage.getItem(`touchstone.${name}`);
    } catch {
      return null;
    }
  },
  write(name, text) {
    try {
      if (text === null) localStorage.removeItem(`touchstone.${name}`);
      else localStorage.setItem(`touchstone.${name}`, text);
    } catch {
      // Nothing is stored: the reader has to give the policy again for the next proof.
    }
  },
};

/** Returns the largest tree of each log that was proven in this browser, by the name of the log. */
function seenTrees() {
  try {
    return JSON.parse(storedTexts.read("seen") ?? "{}") ?? {};
  } catch {
    return {};
  }
}

/** Stores the tree of a proven checkpoint, if it is larger than the stored tree of its log. */
function remember({ origin, seen }) {
  const all = seenTrees();
  const before = Object.hasOwn(all, origin) ? all[origin] : null;
  if (before === null || before.size < seen.size) storedTexts.write("seen", JSON.stringify({ ...all, [origin]: seen }));
}

/** Reads the body of an answer. @throws Error for one longer than `maxBytes` */
async function bodyOf(answer, maxBytes) {
  const reader = answer.body.getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > maxBytes) {
      await reader.cancel();
      throw new Error(`${answer.url} is longer than ${maxBytes} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/**
 * Requests an object from a service.
 * @returns its bytes; null for a 404
 * @throws Error for another status, a longer body, or no answer
 */
async function ask(base, path, maxBytes) {
  for (let tried = 1; ; tried++) {
    const answer = await fetch(`${base}/${path}`, { signal: AbortSignal.timeout(TIMEOUT_MS), credentials: "omit" });
    if (answer.ok) return bodyOf(answer, maxBytes);
    if (answer.status === 404) return null;
    if ((answer.status !== 429 && answer.status !== 503) || tried === TRIES) {
      throw new Error(`${path} was answered with ${answer.status}`);
    }
    const pause_s = Math.min(MAX_PAUSE_S, Number(answer.headers.get("retry-after")) || 2);
    await new Promise((resolve) => setTimeout(resolve, pause_s * 1000));
  }
}

/** Returns a `get` that loads objects from a service, and the objects that it loaded, so that they can be saved. */
function recordingSource(base) {
  const objects = new Map();
  let bytes = 0;
  const get = async (key, maxBytes) => {
    const object = await ask(base, key, maxBytes);
    if (!object || objects.has(key)) return object;
    bytes += object.length;
    if (bytes <= MAX_KEPT) objects.set(key, object);
    return object;
  };
  return { get, objects, isWhole: () => bytes <= MAX_KEPT };
}

/** Loads the proof of a card from a service. @throws Error when there is none, or it has another form */
async function loadProof(base, cap) {
  const bytes = await ask(base, `v1/trust/${cap}/proof`, MAX_PROOF);
  if (!bytes) throw new Error("the service has no card of this endpoint");
  return readProof(new TextDecoder().decode(bytes)).proof;
}

/** Parses a saved proof or card bundle. Returns the proof, and a `get` for the saved objects. @throws Error */
function readProof(text) {
  const value = JSON.parse(text);
  const isObject = (one) => typeof one === "object" && one !== null;
  const isProof = value?.schema === SCHEMAS.proof && isObject(value.bundle);
  if (!isProof && value?.schema !== SCHEMAS.bundle) throw new Error("neither a card bundle nor a saved proof");
  const proof = isProof ? value : { capability_id: value.capability_id, bundle: value, graded: null, evidence: [] };
  const saved = isProof && isObject(value.objects) ? value.objects : {};
  const get = async (key) => (Object.hasOwn(saved, key) ? fromBase64(saved[key]) : null);
  return { proof, get };
}

/** Creates the list of steps, and the line of text that a screen reader reads out as the proof goes on. */
function stepsView() {
  const status = make("p", { className: "line" });
  status.setAttribute("role", "status");
  const items = new Map();
  const list = make("ol", { className: "steps" });
  for (const [id, title] of Object.entries(STEPS)) {
    const [mark, word, says] = [
      make("span", { className: "mark" }),
      make("strong"),
      make("span", { className: "said" }),
    ];
    mark.setAttribute("aria-hidden", "true");
    items.set(id, { mark, word, says, item: make("li", { dataset: { step: id } }, mark, `${title}: `, word, says) });
    list.append(items.get(id).item);
  }
  const tell = (id, outcome, said) => {
    const { mark, word, says, item } = items.get(id);
    item.dataset.outcome = outcome;
    mark.textContent = MARKS[outcome];
    word.textContent = WORDS[outcome];
    says.textContent = said === "" ? "" : `. ${said}`;
    status.textContent = `${STEPS[id]}: ${WORDS[outcome]}${outcome === "running" && said ? `, ${said}` : ""}`;
  };
  const reset = () => {
    for (const { mark, word, says, item } of items.values()) {
      delete item.dataset.outcome;
      for (const one of [mark, word, says]) one.textContent = "";
    }
  };
  const outcomes = () => [...items.values()].map(({ item }) => item.dataset.outcome);
  return { status, list, tell, reset, outcomes };
}

/**
 * Creates the form for the reader's policy, which is pasted or read from a file, and stored in this browser.
 * @param proveAgain called after the policy was stored
 */
function policyView(proveAgain) {
  const policy = make("textarea", { rows: 6, spellcheck: false, value: storedTexts.read("policy") ?? "" });
  const file = make("input", { type: "file" });
  const hours = make("input", {
    type: "number",
    min: "1",
    max: "87600",
    value: storedTexts.read("hours") ?? String(DAY_H),
  });
  const button = make("button", { type: "button", textContent: "Keep it and prove again" });
  file.addEventListener("change", async () => {
    if (file.files[0]) policy.value = await file.files[0].text();
  });
  button.addEventListener("click", () => {
    storedTexts.write("policy", policy.value.trim() === "" ? null : policy.value);
    storedTexts.write("hours", hours.value);
    proveAgain();
  });
  const says = make("p", {
    className: "small soft",
    textContent:
      "Which log, which witnesses, and how many of them: the text that --witness-policy takes (docs/witness). Take it from a place that you trust; one that this service gives you proves less. It stays in this browser.",
  });
  const view = make(
    "details",
    { className: "policy" },
    make("summary", { textContent: "Your witness policy" }),
    says,
    make("label", {}, "Policy ", policy),
    make("label", {}, "or its file ", file),
    make("label", {}, "Oldest checkpoint, hours ", hours),
    button,
  );
  const read = () => ({
    policy: policy.value.trim() === "" ? null : policy.value.endsWith("\n") ? policy.value : `${policy.value}\n`,
    maxAge_s: Math.max(1, Number(hours.value) || DAY_H) * 3600,
  });
  return { view, read };
}

/** Creates a link that saves the proof and all loaded objects as one file; a text if they are too long. */
function saveLink(proof, { objects, isWhole }) {
  if (!isWhole())
    return make("p", { className: "small soft", textContent: "What was loaded is too long for one file." });
  const saved = Object.fromEntries([...objects].map(([key, bytes]) => [key, base64(bytes)]));
  const text = JSON.stringify({ ...proof, schema: SCHEMAS.proof, objects: saved });
  const link = make("a", {
    textContent: "Save all that was loaded as one file",
    download: `${proof.capability_id}.touchstone`,
  });
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  return make("p", {}, link, ` (${Math.ceil(text.length / 1024)} KiB), and prove it later without a network.`);
}

function summaryOf(outcomes, proven) {
  const count = (outcome) => outcomes.filter((one) => one === outcome).length;
  const [failed, open] = [count("failed"), count("open")];
  const letter = proven
    ? `The proven card of ${proven.card.capability_id} has the letter ${proven.card.band}`
    : "No card is proven";
  const end = `${count("shown")} of ${outcomes.length} steps are shown, ${open} not`;
  return failed > 0
    ? `Do not believe this. ${letter}; ${failed} of ${outcomes.length} steps fail.`
    : `${letter}: ${end}.`;
}

/**
 * Shows a proof in this element: of the endpoint that its `data-cap` names, or else of the file or the address that the
 * reader gives.
 */
function mount(host) {
  const { cap } = host.dataset;
  const heading = make("h3", { textContent: "What is proven", tabIndex: -1 });
  const proven = make("p", { className: "why", dataset: { proven: "" } });
  const view = stepsView();
  const after = make("div");
  let source = null;
  let running = false;

  async function run() {
    if (source === null || running) return;
    running = true;
    result.hidden = false;
    view.reset();
    proven.textContent = "";
    after.replaceChildren();
    heading.focus();
    try {
      if (!globalThis.crypto?.subtle)
        throw new Error("a browser proves only over https, on localhost, or in a saved file");
      const { proof, objects, get, shown, wanted } = await source();
      const done = await proveCard(proof, {
        ...policy.read(),
        cap: wanted ?? String(proof.capability_id),
        now_ms: Date.now(),
        get,
        shown,
        seenOf: (origin) => {
          const all = seenTrees();
          return Object.hasOwn(all, origin) ? all[origin] : null;
        },
        tell: view.tell,
      });
      if (done) {
        proven.textContent = done.why;
        if (!view.outcomes().includes("failed")) remember(done);
      }
      view.status.textContent = summaryOf(view.outcomes(), done);
      if (objects) after.append(saveLink(proof, objects));
    } catch (error) {
      view.status.textContent = `Nothing is proven: ${error.message}.`;
    }
    host.dataset.done = String(Number(host.dataset.done ?? 0) + 1);
    running = false;
  }

  const policy = policyView(run);
  const result = make("div", { hidden: true }, heading, view.status, proven, view.list, after);
  /** Returns a source that loads from a service: from the host of this page (base ""), or from another address. */
  const online = (base, of, shown) => async () => {
    const proof = await loadProof(base, of);
    const objects = recordingSource(base);
    return { proof, objects, get: objects.get, shown, wanted: of };
  };

  if (cap) {
    const letter = document.querySelector(".verdict .grade")?.textContent ?? "";
    const sentence = document.querySelector(".verdict details p")?.textContent ?? "";
    source = online("", cap, { letter, sentence, computedAt: host.dataset.computedAt ?? null });
    host.append(result, policy.view);
    run();
    return;
  }
  const file = make("input", { type: "file" });
  const proveFile = (saved) => {
    source = async () => {
      if (saved.size > MAX_SAVED) throw new Error(`${saved.name} is longer than ${MAX_SAVED} bytes`);
      return { ...readProof(await saved.text()), shown: null };
    };
    run();
  };
  file.addEventListener("change", () => file.files[0] && proveFile(file.files[0]));
  host.addEventListener("dragover", (event) => event.preventDefault());
  host.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) proveFile(event.dataTransfer.files[0]);
  });
  const address = make("input", { type: "url", placeholder: "https://HOST/endpoint/cap_…" });
  const button = make("button", { type: "submit", textContent: "Prove" });
  const form = make(
    "form",
    { className: "box" },
    make("label", { className: "wide" }, "or the address of an endpoint's page ", address),
    button,
  );
  address.addEventListener("input", () => address.setCustomValidity(""));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [, of] = /\/(cap_[0-9A-HJKMNP-TV-Z]{26})\b/.exec(address.value) ?? [];
    if (of === undefined) {
      address.setCustomValidity("An endpoint's page has cap_ and 26 more characters in its address.");
      return void address.reportValidity();
    }
    source = online(new URL(address.value).origin, of, null);
    run();
  });
  host.append(
    make("p", {}, make("label", {}, "A saved card bundle or proof (.touchstone), chosen or dropped here ", file)),
    form,
    result,
    policy.view,
  );
}

const host = globalThis.document?.querySelector("[data-prove]");
if (host) mount(host);
