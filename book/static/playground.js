// Two small models that learn side by side, each in a worker of its own, from the same seed.
window.playground = (() => {
  const { make, button, shape, controls, choice, dataOf, isCalm } = window.elements;
  const MOST = 400; // updates of one run
  const STREAK = 5; // batches without a mistake after which a task counts as solved

  // What differs between two models, and the sentence of the paper that it tests.
  const SWITCHES = {
    positions: {
      name: "positions",
      options: { sinusoids: "sinusoids", learned: "learned", none: "none" },
      says: "Attention alone does not know the order of its inputs, so positions are added to them.",
      link: "3-5-positional-encoding.html",
    },
    scaled: {
      name: "scale",
      options: { "by √dₖ": true, none: false },
      says: "The authors suspect that large dot products leave the softmax with tiny gradients, and divide them by √dₖ.",
      link: "3-2-attention.html#what-the-scale-is-for",
    },
    heads: {
      name: "heads",
      options: { 1: 1, 2: 2, 4: 4 },
      says: "Several heads can attend to different positions at once; a single head averages them.",
      link: "3-2-attention.html#multi-head-attention",
    },
    layers: {
      name: "layers",
      options: { 1: 1, 2: 2, 4: 4, 6: 6 },
      says: "The encoder is a stack of six equal layers.",
      link: "3-1-encoder-decoder-stacks.html#the-encoder",
    },
    norm: {
      name: "norm",
      options: { last: "post", first: "pre" },
      says: "Each sub-layer ends in a layer normalization of its input plus its output.",
      link: "since-2017.html#pre-norm",
    },
    residual: {
      name: "residual",
      options: { added: true, none: false },
      says: "Around each sub-layer there is a residual connection.",
      link: "3-1-encoder-decoder-stacks.html#a-residual-connection-around-every-sub-layer",
    },
    rises: {
      name: "warmup",
      options: { 100: true, none: false },
      says: "The learning rate rises linearly during the first updates.",
      link: "5-3-optimizer.html#when-post-norm-needs-a-warmup",
    },
    smoothing: {
      name: "smoothing",
      options: { none: 0, 0.1: 0.1, 0.3: 0.3 },
      says: "Label smoothing makes the model less sure and its answers better.",
      link: "5-4-regularization.html#label-smoothing",
    },
  };
  const SHARED = {
    task: { name: "Task", options: { reverse: "reverse", copy: "copy", sort: "sort", add: "add" } },
    length: { name: "Symbols", options: { 4: 4, 6: 6, 8: 8, 10: 10, 12: 12 } },
    seed: { name: "Seed", options: { 1: 1, 2: 2, 3: 3, 4: 4, 5: 5 } },
  };

  // Comparisons by the names of their headings: what both models share, and what is special in each.
  const EXPERIMENTS = {
    "no-positions": [{}, {}, { positions: "none" }],
    "learned-positions": [{}, {}, { positions: "learned" }],
    "without-the-scale": [{}, {}, { scaled: false }],
    "a-single-head": [{}, {}, { heads: 1 }],
    "no-residual-connection": [{}, {}, { residual: false }],
    "the-norm-first": [{}, {}, { norm: "pre" }],
    "no-warmup": [{}, {}, { rises: false }],
    "norm-first-without-a-warmup": [{ rises: false }, {}, { norm: "pre" }],
    "sorting-without-positions": [{ task: "sort" }, {}, { positions: "none" }],
  };

  // ------------------------------------------------------------------------------ the worker

  // Trains up to an update, and reports a few times per second.
  function serve(Trainer) {
    const { performance, postMessage } = globalThis;
    let [trainer, text, until, pause, busy, spent, news] = [null, "", 0, 80, false, 0, []];
    function work() {
      const start = performance.now();
      while (trainer.updates < until && performance.now() < start + pause) {
        news.push(trainer.step());
      }
      spent += performance.now() - start;
      const { updates, settings } = trainer;
      const done = updates >= until;
      const lengths = [settings.length, Math.min(16, settings.length + 4)];
      const exams = done && updates >= 20 ? lengths.map((n) => [n, trainer.exam(n)]) : null;
      const { answers, seen } = trainer.run([text]);
      postMessage({ updates, news, exams, spent, text, answer: answers[0], seen, done });
      news = [];
      busy = !done;
      if (busy) setTimeout(work);
    }
    globalThis.onmessage = ({ data }) => {
      if (data.settings) [trainer, spent, news] = [new Trainer(data.settings), 0, []];
      text = data.text ?? text;
      until = data.until ?? until;
      pause = data.pause ?? pause;
      if (!busy) work();
    };
  }

  // -------------------------------------------------------------------------------- the view

  const percent = (share) => `${Math.round(100 * share)}%`;
  const nats = (loss) => `${loss.toFixed(2)} nats`;

  const told = (heads) =>
    ["one head", "heads 1 and 2", `heads 1 to ${heads}`][Math.min(heads, 3) - 1];

  // Weights of a head (n, n), a row for each query.
  function drawHead(canvas, weights, n, color) {
    if (canvas.width !== 8 * n) Object.assign(canvas, { width: 8 * n, height: 8 * n });
    const paper = canvas.getContext("2d");
    paper.clearRect(0, 0, canvas.width, canvas.height);
    paper.fillStyle = color;
    for (let i = 0; i < n * n; i++) {
      paper.globalAlpha = weights[i];
      paper.fillRect(8 * (i % n), 8 * Math.floor(i / n), 8, 8);
    }
  }

  // One of the two models: its worker, its numbers, and what is shown of it.
  function makeRun(name, changed, code) {
    const named = make("span");
    const head = make("p", { className: "name" }, named);
    const title = make("p", { className: "note" });
    const heads = make("div", { className: "heads" });
    const answer = make("p", { className: "translation" });
    const parts = [head, title, answer, heads];
    const element = make("section", { ariaLabel: `Model ${name}` }, ...parts);
    const run = { name, element, head, named, losses: [], updates: 0, solved: 0 };
    let [worker, streak, canvases] = [null, 0, []];
    const send = (message) => worker.postMessage(message);
    Object.assign(run, { send });

    // Places for the heads of a model that nothing is known of yet.
    function lay(settings) {
      Object.assign(run, { settings, losses: [], updates: 0, solved: 0, exams: null, done: true });
      run.text = ""; // nothing is drawn before it is known
      streak = 0;
      canvases = Array.from({ length: settings.layers }, (_, layer) =>
        Array.from({ length: settings.heads }, (_, head) =>
          make("canvas", { role: "img", ariaLabel: `Layer ${layer + 1}, head ${head + 1}` }),
        ),
      );
      const layers = canvases.map((row, i) =>
        make("div", {}, make("span", {}, `Layer ${i + 1}, ${told(row.length)}`), ...row),
      );
      layers[0].append(make("span", { textContent: "↓ queries, → keys" }));
      heads.replaceChildren(...layers);
    }

    run.start = (settings, text) => {
      worker?.terminate();
      worker = new Worker(code);
      worker.onmessage = ({ data }) => take(data);
      worker.onerror = (event) => {
        title.textContent = `This did not work: ${event.message}`;
      };
      lay(settings);
      send({ settings, text, until: 0, pause: isCalm() ? 1000 : 80 });
    };
    // What a model had learned when it was recorded.
    run.show = (settings, text, { losses, rights, answer, seen }) => {
      lay(settings);
      const news = losses.map((loss, i) => ({ loss, right: rights[i] }));
      const weights = seen.map((layer) => Float32Array.from(layer));
      take({ news, updates: losses.length, text, answer, seen: weights });
    };

    function take(news) {
      for (const { loss, right } of news.news) {
        run.losses.push(loss);
        streak = right === run.settings.batch ? streak + 1 : 0;
        if (streak === STREAK) run.solved ||= run.losses.length;
        run.right = right;
      }
      Object.assign(run, news);
      changed();
    }

    run.draw = (wanted) => {
      if (!run.text) return;
      const { color } = getComputedStyle(heads); // first, because later it would wait for a layout
      const { updates, losses, right, seen, text } = run;
      const sofar = `loss ${losses.at(-1)?.toFixed(3)}, ${right}\u00a0of\u00a0${run.settings.batch}\u00a0texts\u00a0right`;
      title.textContent = updates ? `update ${updates}, ${sofar}` : "untrained";
      const marks = Array.from(run.answer, (symbol, i) =>
        make(symbol === wanted?.[i] ? "span" : "del", { textContent: symbol }),
      );
      answer.replaceChildren(`${text} → `, ...marks);
      const n = text.length;
      canvases.forEach((row, layer) => {
        row.forEach((canvas, head) => {
          drawHead(canvas, seen[layer].subarray(head * n * n, (head + 1) * n * n), n, color);
        });
      });
    };
    return run;
  }

  // Losses of both models against updates: each has its name where it ends, and is marked where the
  // task is solved.
  function makeCurves() {
    const [width, height] = innerWidth < 577 ? [324, 140] : [710, 160];
    const [left, right] = [18, 60];
    const [top, bottom, most] = [26, 20, 2.6];
    const grid = shape("g");
    const lines = [0, 1].map(() => shape("g", { class: "curve" }));
    const viewBox = `0 0 ${width} ${height}`;
    const element = shape("svg", { viewBox, role: "img" }, grid, ...lines);
    element.classList.add("curves");
    const style = `font-size: ${width < 400 ? 12 : 13}px`;
    const label = (textContent, at) =>
      Object.assign(shape("text", { ...at, style }), { textContent });
    const y = (loss) => top + (height - bottom - top) * (1 - Math.min(loss, most) / most);
    const draw = (runs) => {
      const updates = Math.max(MOST, ...runs.map(({ losses }) => losses.length));
      const x = (i) => left + ((width - left - right) * i) / updates;
      const rule = (loss) => [
        shape("path", { d: `M${left} ${y(loss)}H${width - right}`, class: "rule" }),
        label(`${loss}`, { x: left - 6, y: y(loss) + 4, "text-anchor": "end" }),
      ];
      const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
        const at = { x: x(share * updates), y: height - 4, "text-anchor": "middle" };
        if (share === 1) Object.assign(at, { x: at.x - 18, "text-anchor": "start" });
        return label(`${Math.round(share * updates)}${share === 1 ? " updates" : ""}`, at);
      });
      const title = label("loss, nats per symbol", { x: 0, y: 12 });
      grid.replaceChildren(...[0, 1, 2].flatMap(rule), ...ticks, title);
      // Both names above the axis, and not on each other.
      const ends = runs.map(({ losses }) => Math.min(y(losses.at(-1) ?? most) + 4, y(0) - 4));
      const upper = ends[0] < ends[1] ? 0 : 1;
      ends[upper] = Math.min(ends[upper], ends[1 - upper] - 14);
      runs.forEach(({ name, losses, solved }, i) => {
        const points = losses.flatMap((loss, at) =>
          loss > most ? [] : [`${x(at + 1).toFixed(1)},${y(loss).toFixed(1)}`],
        );
        const place = [x(solved), y(losses[solved - 1] ?? 0)];
        const end = { x: x(losses.length) + 6, y: ends[i] };
        lines[i].replaceChildren(
          shape("polyline", { points: points.join(" ") }),
          ...(losses.length ? [label(`${name} ${losses.at(-1).toFixed(2)}`, end)] : []),
          ...(solved ? [shape("circle", { cx: place[0], cy: place[1], r: 5 })] : []),
          ...(solved
            ? [label(`solved at ${solved}`, { x: place[0] + 4, y: place[1] - 12 - 16 * i })]
            : []),
        );
      });
      const said = runs.map(({ name, losses }) => `${name} ${nats(losses.at(-1) ?? 0)}`).join(", ");
      element.setAttribute("aria-label", `Loss against updates: ${said}`);
    };
    return { element, draw };
  }

  // What was seen of a model, once it stops.
  function seenOf({ name, updates, solved, losses, exams, spent, right, settings }) {
    const [[n, here], [longer, there]] = exams;
    const seconds = `${(spent / 1000).toFixed(1)} s`;
    const end = solved
      ? `${name} solves the task at update ${solved} of ${updates} (${seconds}).`
      : `${name} has not solved the task after ${updates} updates (${seconds}): its loss is ${nats(losses.at(-1))}, and ${right} of the last ${settings.batch} answers are right.`;
    return `${end} In 100 new texts it gets ${percent(here)} of the symbols right at length ${n} and ${percent(there)} at length ${longer}.`;
  }

  // The switches that differ, and how each is set in A and in B.
  function apart(both) {
    const nameOf = (key, value) =>
      Object.entries(SWITCHES[key].options).find(([, each]) => each === value)[0];
    return Object.keys(SWITCHES)
      .filter((key) => both[0].settings[key] !== both[1].settings[key])
      .map((key) => [SWITCHES[key], ...both.map(({ settings }) => nameOf(key, settings[key]))]);
  }

  // Which models have solved the task, and which of them sooner.
  function resultOf([a, b]) {
    const [first, second] = (b.solved || Infinity) < (a.solved || Infinity) ? [b, a] : [a, b];
    const lead = second.solved - first.solved;
    return !first.solved
      ? "Neither model has solved the task"
      : !second.solved
        ? `Only ${first.name} has solved the task`
        : `Both have solved the task, ${lead ? `${first.name} ${lead} updates sooner` : "at the same update"}`;
  }

  // Which sentences of the paper the comparison is about, and what it says of them.
  function verdictOf([a, b]) {
    const parts = apart([a, b]).map(
      ([{ name, says }, one, other]) =>
        `${name}: ${one} in A, ${other} in B. The paper’s point: ${says}`,
    );
    const caution = "One seed can be lucky: try others.";
    return [
      ...parts,
      parts.length ? `${resultOf([a, b])}. ${caution}` : "A and B are the same model.",
    ];
  }

  function fill(box) {
    const { Trainer, TASKS, DEFAULTS, LONGEST } = window.makeTrainer(window.makeTape());
    const text = `const { Trainer } = (${window.makeTrainer})((${window.makeTape})());(${serve})(Trainer);`;
    const code = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const known = (key) => Object.values((SHARED[key] ?? SWITCHES[key]).options);
    const at = (key, value) =>
      Math.max(
        0,
        known(key).findIndex((each) => `${each}` === `${value}`),
      );

    const shared = {};
    for (const [key, { name, options }] of Object.entries(SHARED))
      shared[key] = choice(name, Object.entries(options), at(key, DEFAULTS[key]), () =>
        reset(true),
      );
    const sides = [{}, {}];
    const rows = Object.entries(SWITCHES).map(([key, { name, options, says, link }]) => {
      const cells = sides.map((side, i) => {
        side[key] = choice("", Object.entries(options), at(key, DEFAULTS[key]), () => reset());
        side[key].select.ariaLabel = `${name}, model ${"AB"[i]}`;
        return make("td", {}, side[key].element);
      });
      const head = make("th", { scope: "row" }, make("a", { href: link, title: says }, name));
      return Object.assign(make("tr", {}, head, ...cells), { key });
    });
    const titles = ["Parts", "A", "B"].map((textContent) =>
      make("th", { scope: "col", textContent }),
    );
    const table = make(
      "table",
      { className: "kept" },
      make("thead", {}, make("tr", {}, ...titles)),
      make("tbody", {}, ...rows),
    );

    const toggle = () => (isRunning() ? halt() : go());
    const play = button({ className: "run", textContent: "Play", onclick: toggle });
    const step = button({ textContent: "Step", onclick: () => go(1) });
    const others = make(
      "details",
      {},
      make("summary", { textContent: "Task, seed, and all other parts of both models" }),
      controls(shared.task, shared.seed, shared.length),
      table,
    );
    const again = button({ textContent: "Reset", onclick: () => reset() });
    const input = make("input", { type: "text", autocomplete: "off", spellcheck: false });
    input.inputMode = "numeric";
    input.oninput = () => {
      if (isAsked(input.value)) {
        begin();
        for (const run of runs) run.send({ text: input.value });
      }
      note.textContent = isAsked(input.value) ? "" : asked();
    };
    const typed = make("label", { className: "sentence" }, "Your text ", input);
    const note = make("span");
    const seen = make("div", { role: "status", className: "seen" });
    const curves = makeCurves();
    const title = make("strong");
    let [due, isRecorded] = [false, false];
    const changed = () => {
      if (!due) requestAnimationFrame(draw);
      due = true;
    };
    const runs = ["A", "B"].map((name) => makeRun(name, changed, code));

    const task = () => shared.task.value;
    const isAsked = (text) =>
      (task() === "add" ? /^\d+\+\d+$/ : /^\d+$/).test(text) && text.length <= LONGEST;
    const asked = () =>
      `Type ${task() === "add" ? "two numbers with a + between them" : "digits"}, at most ${LONGEST} symbols.`;
    const isRunning = () => runs.some(({ done }) => !done);

    const updates = () => Math.max(...runs.map((run) => run.updates));
    const begin = () => isRecorded && reset(false, false); // from the start, and not from a record
    // Trains both for some updates; none given: up to 400, then to 800, and so on.
    function go(more) {
      begin();
      seen.textContent = "";
      const until = updates() + (more ?? MOST - (updates() % MOST));
      for (const run of runs) {
        Object.assign(run, { done: false, exams: null });
        run.send({ until });
      }
      changed();
    }
    function halt() {
      for (const run of runs) run.send({ until: 0 });
    }

    function draw() {
      due = false;
      for (const run of runs) run.draw(run.text && TASKS[task()](run.text));
      curves.draw(runs);
      title.textContent = resultOf(runs);
      play.textContent = isRunning() ? "Pause" : "Play";
      const over = !isRunning() && runs.every(({ exams }) => exams);
      const said = over ? [...runs.map(seenOf), ...verdictOf(runs)] : [];
      if (seen.textContent !== said.join(""))
        seen.replaceChildren(...said.map((textContent) => make("p", { textContent })));
    }

    // ----------------------------------------------------------------------------- settings

    const settingsOf = (side) => {
      const all = [shared, side].flatMap((part) => Object.entries(part));
      return { ...DEFAULTS, ...Object.fromEntries(all.map(([key, { value }]) => [key, value])) };
    };

    // A single part in which the models differ is chosen at their names, all others in the table.
    let front = null;
    function arrange() {
      const isApart = (key) => sides[0][key].value !== sides[1][key].value;
      const keys = Object.keys(SWITCHES).filter(isApart);
      front = keys.length === 1 ? keys[0] : null;
      others.open ||= keys.length > 1;
      for (const row of rows) {
        row.hidden = row.key === front;
        for (const [i, side] of sides.entries())
          (row.hidden ? runs[i].head : row.cells[i + 1]).append(side[row.key].element);
      }
    }

    // Each model is named by what is special in it.
    function tellApart() {
      const different = apart(runs);
      const isFront = (part) => part === SWITCHES[front];
      for (const [i, run] of runs.entries()) {
        const told = different.flatMap(([part, ...set]) =>
          isFront(part) ? [] : `${part.name}: ${set[i]}`,
        );
        if (front) told.push(`${SWITCHES[front].name}:`);
        run.named.textContent = [run.name, ...told].join(", ");
      }
    }

    // Starts both models again, and keeps their settings in the address.
    function reset(newText = false, keep = true) {
      if (newText || !isAsked(input.value)) {
        input.value = new Trainer({ ...settingsOf({}), layers: 0 }).texts(1, () =>
          Math.random(),
        )[0];
      }
      note.textContent = "";
      isRecorded = false;
      for (const [i, run] of runs.entries()) run.start(settingsOf(sides[i]), input.value);
      tellApart();
      const address = new URLSearchParams();
      const write = (part, before) => {
        for (const [key, { value }] of Object.entries(part))
          if (value !== DEFAULTS[key]) address.set(`${before}${key}`, value);
      };
      write(shared, "");
      write(sides[0], "a.");
      write(sides[1], "b.");
      if (keep) history.replaceState(null, "", `#train?${address}`);
      changed();
    }

    function choose(read) {
      for (const key of Object.keys(SHARED)) shared[key].select.selectedIndex = read("", key);
      for (const [i, side] of sides.entries())
        for (const key of Object.keys(SWITCHES))
          side[key].select.selectedIndex = read("ab"[i], key);
      arrange();
    }
    // Settings by the address: those of an experiment, or all.
    function follow() {
      const place = location.hash.slice(1);
      if (EXPERIMENTS[place]) {
        show(place, false);
        document.querySelector(`#${place} > details`)?.setAttribute("open", "");
      } else if (place.startsWith("train?")) {
        const given = new URLSearchParams(place.slice(6));
        const read = (side, key) =>
          at(key, given.get(side ? `${side}.${key}` : key) ?? DEFAULTS[key]);
        choose(read);
        reset(true, false);
        box.scrollIntoView();
      }
    }
    function compare([both, ...own]) {
      choose((side, key) => {
        const given = { ...DEFAULTS, ...both, ...own["ab".indexOf(side)] };
        return at(key, given[key]);
      });
    }
    function show(place, keep = true) {
      compare(EXPERIMENTS[place]);
      reset(true, keep);
    }

    // The first comparison, as it was recorded.
    function showRecorded({ text, models }) {
      compare(Object.values(EXPERIMENTS)[0]);
      input.value = text;
      for (const [i, run] of runs.entries()) run.show(settingsOf(sides[i]), text, models[i]);
      tellApart();
      isRecorded = true;
    }

    const recorded = dataOf(box);
    box.append(
      controls(play, step, again, typed, note),
      make("p", { className: "chart-title" }, title),
      curves.element,
      make("div", { className: "runs-side" }, ...runs.map(({ element }) => element)),
      seen,
      others,
    );
    Object.assign(box, { role: "group", ariaLabel: "Two models that learn" });
    // Each comparison becomes a row of one chart, with a dot for each seed that solves the task, and
    // their number; what is said of it, and the button that trains it, are folded.
    const at100 = (update) => `${(100 * update) / MOST}%`;
    const dot = (update) =>
      shape("circle", { cx: at100(update), cy: "50%", r: 3.5, "fill-opacity": 0.6 });
    const lane = (updates) => [
      shape("svg", { class: "lane", "aria-hidden": true }, ...updates.map(dot)),
      make("span", { textContent: updates.length || "none", title: "seeds of 20 that solve it" }),
    ];
    for (const [place, { B }] of Object.entries(recorded.solved)) {
      const onclick = () => {
        show(place);
        box.scrollIntoView();
        go();
      };
      const section = document.getElementById(place);
      if (!section) continue;
      const [heading, ...said] = section.children;
      const name = make("h3", { textContent: heading.firstChild.textContent });
      const line = make("summary", { className: "lanes" }, name, ...lane(B));
      const train = button({ textContent: "Train A and B above", onclick });
      section.replaceChildren(make("details", { className: "flush" }, line, ...said, train));
    }
    const tick = (update) => {
      const anchor = update === 0 ? "start" : update === MOST ? "end" : "middle";
      const text = shape("text", { x: at100(update), y: 14, "text-anchor": anchor });
      return Object.assign(text, { textContent: update });
    };
    const axis = { width: "100%", height: 18, fill: "currentcolor", "aria-hidden": true };
    document
      .querySelector(".lanes")
      ?.replaceChildren(
        make("span", { textContent: "solved at update" }),
        shape("svg", axis, ...[0, 1, 2, 3, 4].map((i) => tick((i * MOST) / 4))),
        make("span", { textContent: "of 20" }),
        make("strong", { textContent: "Model A" }),
        ...lane(Object.values(recorded.solved)[0].A),
      );
    showRecorded(recorded);
    follow();
    addEventListener("hashchange", follow);
  }

  async function open(box) {
    await Promise.all(["derivatives.js", "trainer.js"].map((name) => window.loadScript(name)));
    fill(box);
  }
  for (const box of document.querySelectorAll("div.playground")) open(box);
  return { EXPERIMENTS, SWITCHES, MOST, STREAK };
})();
