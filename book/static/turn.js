// Your turn: the reader writes a small part of the Transformer in Python. It is checked against the
// model's numbers in a worker, and then the page's translator runs on it. Nothing is loaded before
// the first run.
(() => {
  const { make, button, controls, sentenceForm, dataOf } = window.elements;
  const MODEL = "multi30k-en-de";
  const CAPTIONS = [
    "A view of a crowded city street.",
    "The group of people are all covered by umbrellas.",
    "A boy in a red shirt is throwing a ball to his dog.",
    "A man is riding a bicycle.",
  ];
  const [CHECK, SILENCE] = [5000, 10000]; // milliseconds that a check may take; a pause of a translation
  const KEPT = "turn";
  const all = []; // the places of this page
  let stopIdle = null; // only one worker may be idle, because each takes much memory

  // What was written: by part, its code, and whether it was right.
  const kept = () => {
    try {
      return JSON.parse(localStorage.getItem(KEPT)) ?? {};
    } catch {
      return {};
    }
  };
  const keep = (part, entry) => {
    const entries = kept();
    if (entry) entries[part] = entry;
    else delete entries[part];
    localStorage.setItem(KEPT, JSON.stringify(entries));
  };
  const rightParts = () => Object.entries(kept()).filter(([, { right }]) => right);

  // ------------------------------------------------------------------------------ the worker

  async function unpacked(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  let loaded;
  const load = () => {
    loaded ??= loadTexts().catch((error) => {
      loaded = null;
      throw error;
    });
    return loaded;
  };
  async function loadTexts() {
    await Promise.all(
      ["micropython.js", "../models/by-hand.js"].map((path) => window.loadScript(path)),
    );
    const { texts, micropython } = window.turn;
    const [script, wasm] = await Promise.all([micropython.script, micropython.wasm].map(unpacked));
    const parts = ["self.window = self; self.document = { baseURI: '' };", script, texts.scripts];
    const url = URL.createObjectURL(new Blob(parts, { type: "text/javascript" }));
    return { url, wasm, checks: texts.checks, numbers: texts.numbers };
  }

  // A worker that answers one question at a time, and is stopped if it is silent for too long.
  function start(url) {
    const worker = new Worker(url);
    const stop = () => worker.terminate();
    const ask = (question, limit) =>
      new Promise((resolve, reject) => {
        let timer;
        const wait = () => {
          clearTimeout(timer);
          timer = setTimeout(() => {
            stop();
            reject(
              new Error(`stopped after ${limit / 1000} seconds. Is there a loop without end?`),
            );
          }, limit);
        };
        worker.onmessage = ({ data }) => {
          if (data?.kind === "alive") return wait();
          if (data?.kind !== question.kind && data?.kind !== "failed") return; // a reader's message
          clearTimeout(timer);
          if (data.kind === question.kind) return resolve(data);
          reject(new Error(`${data.line ? `in ${data.line}, ` : ""}${data.text}`));
        };
        worker.onerror = (event) => {
          event.preventDefault();
          clearTimeout(timer);
          stop();
          reject(new Error(event.message || "the worker stopped"));
        };
        worker.postMessage(question);
        wait();
      });
    return { ask, stop };
  }

  // ------------------------------------------------------------------------------- the editor

  // A field for code with numbered lines. Tab indents, unless Escape came just before.
  function editor(label, change, run) {
    const numbers = make("pre", { className: "numbers", ariaHidden: "true" });
    const more = { spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off" };
    const field = make("textarea", { ...more, ariaLabel: label });
    const insert = (text) => {
      if (!document.execCommand("insertText", false, text))
        field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
      number();
    };
    let leaving = false;
    field.onkeydown = (event) => {
      event.stopPropagation(); // arrows turn no page
      const { key, shiftKey, ctrlKey, metaKey } = event;
      const before = field.value.slice(0, field.selectionStart);
      if (key === "Enter" && (ctrlKey || metaKey)) {
        event.preventDefault();
        run();
      } else if (key === "Enter") {
        event.preventDefault();
        const line = before.slice(before.lastIndexOf("\n") + 1);
        insert(`\n${line.match(/^ */)[0]}${line.trimEnd().endsWith(":") ? "    " : ""}`);
      } else if (key === "Tab" && !shiftKey && !leaving) {
        event.preventDefault();
        insert(" ".repeat(4 - ((before.length - before.lastIndexOf("\n") - 1) % 4)));
      }
      leaving = key === "Escape";
    };
    function number() {
      const lines = field.value.split("\n").length;
      field.rows = Math.max(lines, 4);
      numbers.textContent = Array.from({ length: lines }, (_, i) => i + 1).join("\n");
    }
    field.oninput = () => {
      number();
      change();
    };
    const set = (text) => {
      field.value = text.trimEnd();
      number();
    };
    return { element: make("div", { className: "code" }, numbers, field), field, set };
  }

  // ------------------------------------------------------------------------------ a file of all

  // What the reader has written, with the check and its numbers, as a program.
  async function fileOfAll() {
    const { checks, numbers } = await load();
    const entries = kept();
    const names = all.map(({ part }) => part).filter((part) => entries[part]?.right);
    const books = all.filter(({ part }) => !names.includes(part));
    const used = new Set(
      all.filter(({ part }) => names.includes(part)).flatMap((one) => one.needs),
    );
    const others = books.filter(({ part }) => used.has(part));
    return `# My parts of the Transformer. Run this file to check them.
import math
import types

${others.map(({ part, solution }) => `# The book's ${part}.\n${solution}`).join("\n\n")}
${names.map((part) => entries[part].code.trimEnd()).join("\n\n\n")}


# The check, and the model's numbers.
by_hand = types.ModuleType("by_hand")
by_hand.__file__ = "by_hand"
exec(compile(${JSON.stringify(checks)}, "by_hand", "exec"), by_hand.__dict__)
by_hand.load(${JSON.stringify(numbers)})
for name in ${JSON.stringify(names)}:
    print(by_hand.check(name, globals()[name]))
`;
  }

  async function download() {
    const blob = new Blob([await fileOfAll()], { type: "text/x-python" });
    const link = make("a", { href: URL.createObjectURL(blob), download: "transformer_by_hand.py" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // ------------------------------------------------------------------------ a place on a page

  function fill(box) {
    const { part } = box.dataset;
    const { task, hint, solution, needs, megabytes, ...data } = dataOf(box);
    const skeleton = data.skeleton.trimEnd();
    let [worker, latest, verdict] = [null, 0, null];

    const { element, field, set } = editor(`Python code of ${part}`, save, run);
    const status = make("p", { className: "verdict", role: "status" });
    const printed = make("pre", { className: "printed", hidden: true });
    const help = make("p", { className: "note", hidden: true });
    const runs = button({
      textContent: "Run",
      title: "Ctrl + Enter",
      className: "run",
      onclick: run,
    });
    const hints = button({ textContent: "Hint", onclick: () => show(hint) });
    const solutions = button({ textContent: "Solution", onclick: () => replace(solution) });
    const resets = button({ textContent: "Reset", onclick: () => replace(skeleton) });
    const saves = () => download().catch((error) => show(error.message));
    const file = button({ textContent: "Download all", onclick: saves });
    const input = make("input", {
      type: "text",
      value: CAPTIONS[0],
      lang: "en",
      autocomplete: "off",
    });
    const form = sentenceForm("English", input, "Translate", translate);
    const take = (text) => {
      input.value = text;
      translate();
    };
    const offer = (textContent) => button({ textContent, onclick: () => take(textContent) });
    const captions = make("p", { className: "examples" }, ...CAPTIONS.map(offer));
    const said = make("p", { className: "translation", lang: "de", role: "status" });
    const about = make("p", { className: "note" });
    const below = make("div", { hidden: true }, about, form, captions, said);
    const keys = "Tab indents; Escape, then Tab leaves the field. Control and Enter run the code.";
    const first = `The first run loads Python and the model (${megabytes} MB). Nothing is sent. `;
    const note = make("p", { className: "note", id: `turn-${part}`, textContent: first + keys });
    field.setAttribute("aria-describedby", note.id);

    Object.assign(box, { role: "group", ariaLabel: `Your turn: ${part}` });
    box.append(
      make(
        "p",
        { className: "task" },
        make("strong", { textContent: "Your turn. " }),
        ...coded(task),
      ),
      element,
      controls(runs, hints, solutions, resets, file),
      note,
      help,
      status,
      printed,
      below,
    );
    set(kept()[part]?.code ?? skeleton);
    if (kept()[part]?.right) box.classList.add("right");
    offerFile();
    all.push({ part, solution, needs, offerFile });

    function offerFile() {
      file.hidden = rightParts().length === 0;
    }
    function show(text) {
      help.hidden = false;
      help.replaceChildren(...coded(text));
    }
    // Undo brings back what was there.
    function replace(text) {
      forget();
      field.focus();
      field.select();
      document.execCommand("insertText", false, text.trimEnd());
      set(text);
      save();
    }
    function save(right = false) {
      if (verdict?.right && !right) forget();
      keep(part, field.value === skeleton ? null : { code: field.value, right });
      box.classList.toggle("right", right);
      for (const one of all) one.offerFile();
    }
    function close() {
      worker?.stop();
      worker = null;
    }
    function busy() {
      if (stopIdle === close) stopIdle = null;
    }

    // Takes away what was said of other code, and ends what is under way.
    function forget() {
      latest++;
      busy();
      close();
      verdict = null;
      [printed.hidden, below.hidden, status.textContent, said.textContent] = [true, true, "", ""];
      box.classList.remove("right", "wrong");
    }

    async function run() {
      forget();
      const turn = latest;
      status.textContent = "Running …";
      try {
        const { url, wasm, checks, numbers } = await load();
        note.textContent = keys;
        if (turn !== latest) return;
        worker = start(url);
        const code = field.value;
        const others = Object.fromEntries(
          rightParts()
            .filter(([name]) => name !== part)
            .map(([name, entry]) => [name, entry.code]),
        );
        const question = { kind: "check", wasm, checks, numbers, part, code, others };
        const found = await worker.ask(question, CHECK);
        if (turn !== latest) return;
        verdict = { ...found, own: [part, ...Object.keys(others)] };
        status.textContent = found.text;
        printed.textContent = found.printed;
        printed.hidden = !found.printed;
        box.classList.add(found.right ? "right" : "wrong");
        if (code === field.value) save(found.right);
        if (!found.right) box.classList.add("wrong");
        below.hidden = !found.runs;
        const names = new Intl.ListFormat("en").format(verdict.own);
        about.textContent = `The page’s translator, with your ${names} in place of the book’s:`;
        if (found.runs) await translate();
        else close();
      } catch (error) {
        if (turn !== latest) return;
        close();
        status.textContent = `This did not work: ${error.message}`;
        box.classList.add("wrong");
      }
    }

    async function translate() {
      if (!worker) return run();
      busy();
      const turn = latest;
      said.ariaBusy = "true";
      said.textContent = "Translating …";
      try {
        const { config, bytes, encode, decode } = await window.liveModel(MODEL);
        if (turn !== latest) return;
        const { ids } = encode(input.value);
        const search = part === "beam" ? "beam" : "greedy";
        const causal = part !== "mask" || verdict.right;
        const how = { own: verdict.own, causal, search };
        const question = { kind: "translate", config, bytes, ids, ...how };
        const found = await worker.ask(question, SILENCE);
        if (turn !== latest) return;
        const [mine, book] = [found.ids, found.expected].map((each) => spelled(decode, each));
        const silent = verdict.right ? "" : " — the same as with the book’s parts";
        const other = ` — with the book’s parts: ${book}`;
        said.textContent = (mine || "(nothing)") + (mine === book ? silent : other);
      } catch (error) {
        if (turn !== latest) return;
        said.textContent = `The translator stops: ${error.message}`;
        if (/^stopped after/.test(error.message)) worker = null;
      }
      said.ariaBusy = "false";
      stopIdle?.();
      stopIdle = close;
    }
  }

  // Text in which backticks mark code.
  const coded = (text) =>
    text.split("`").map((each, i) => (i % 2 ? make("code", { textContent: each }) : each));

  // Ids as text; what is no id is shown as it is.
  const spelled = (decode, ids) =>
    ids.every(Number.isInteger) ? decode(ids) : ids.map(String).join(" ");

  for (const box of document.querySelectorAll("div.turn[data-part]")) fill(box);
  window.yourTurn = { fileOfAll };
})();
