// A training as a film: its losses, a translation and the heads of the decoder at some of its
// checkpoints. `python -m benchmarks.film` has written what the page holds.
window.film = (() => {
  const { range, sum, mean, tableOf, plain, headName, dataOf, isCalm } = window.elements;
  const { make, button, shape, controls, slider, headButton, check, rove } = window.elements;
  const PACE = 500; // milliseconds for each checkpoint
  const [WIDTH, LEFT, RIGHT, PANEL, HIGH] = [352, 44, 20, 70, 43]; // of the curves, each panel, its drawing
  const [CELL, NAMES, TOP] = [21, 104, 62]; // of the matrix of weights
  const FOOT = 3 * PANEL;
  const bottomOf = (i) => PANEL * (i + 1) - 4;
  const whole = (number) => number.toLocaleString("en");

  // ------------------------------------------------------------------------ numbers and texts

  // The film that a page holds, with its weights as numbers.
  const read = ({ frames, ...film }) => ({
    ...film,
    frames: frames.map((frame) => ({
      ...frame,
      weights: frame.weights.map((heads) =>
        heads.map((rows) => rows.map((row) => row.split(" ").map((n) => n / 100))),
      ),
    })),
  });

  // How much of its weight a head gives to the English words that a German word translates.
  const aligned = (rows, pairs) =>
    mean(Object.entries(pairs).map(([q, ks]) => sum(ks.map((k) => rows[q][k]))));

  // The first checkpoint at which a curve of these weights is above one half, or -1.
  const momentOf = (shares) => shares.findIndex((share) => share > 0.5);

  // What the three panels show of all checkpoints: a list of curves each.
  const curvesOf = ({ frames, pairs }, head) => [
    [frames.map(({ dev_loss }) => dev_loss), frames.map(({ train_loss }) => train_loss)],
    [frames.map((frame) => aligned(tableOf(frame, head), pairs))],
    [frames.map(({ learning_rate }) => learning_rate)],
  ];

  // The largest of some numbers, rounded up to one digit.
  function most(numbers) {
    const unit = 10 ** Math.floor(Math.log10(Math.max(...numbers)));
    return Math.ceil(Math.max(...numbers) / unit) * unit;
  }

  // Places in the drawing: of an update on a logarithmic scale, and of a value in a panel.
  function scalesOf(film) {
    const updates = film.frames.map(({ update }) => update);
    const [first, last] = [updates[0], updates.at(-1)];
    const [losses, , rates] = curvesOf(film, null);
    const tops = [most(losses.flat()), 1, most(rates.flat())];
    const x = (update) =>
      LEFT + ((WIDTH - LEFT - RIGHT) * Math.log(update / first)) / Math.log(last / first);
    const y = (i, value) => bottomOf(i) - (HIGH * value) / tops[i];
    const tens = range(7).map((n) => 10 ** n);
    const ticks = tens.filter((n) => n >= first && n <= last && x(last) - x(n) > 45);
    return { updates, tops, x, y, ticks: [...ticks, last] };
  }

  // The words of a translation, and whether the last one has them too: each as often as it stands there.
  function compare(text, final) {
    const left = final.split(" ");
    return text.split(" ").map((word) => {
      const found = left.indexOf(word);
      if (found >= 0) left.splice(found, 1);
      return [word, found >= 0];
    });
  }

  function tell({ update, dev_loss, weights }, pairs) {
    const heads = weights.flat();
    const sure = heads.filter((rows) => aligned(rows, pairs) > 0.5).length;
    const have = `${sure || "none"} of the ${heads.length} heads ${sure < 2 ? "has" : "have"}`;
    return `After ${whole(update)} updates the development loss is ${dev_loss.toFixed(2)}, and ${have} most of the weight in the boxes.`;
  }

  // --------------------------------------------------------------------------------- drawings

  // The curves; `show` moves them to a checkpoint.
  function drawCurves(film) {
    const { updates, tops, x, y, ticks } = scalesOf(film);
    const axis = (d) => shape("path", { d, class: "axis" });
    const text = (at, said, anchor) =>
      shape("text", { ...at, class: "tick", "text-anchor": anchor }, said);
    const panels = [2, 1, 1].map((count, i) => ({
      title: shape("text", { x: LEFT, y: PANEL * i + 12 }),
      lines: range(count).map((j) =>
        ["later", "sooner"].map((part) => shape("polyline", { class: `${part} line${j}` })),
      ),
    }));
    const cursor = shape("path", { class: "cursor" });
    const moment = shape("g", { class: "moment" });
    const dots = shape("g", { class: "dots" });
    const scales = tops.flatMap((top, i) =>
      [0, top].flatMap((value) => [
        axis(`M${LEFT} ${y(i, value)}H${WIDTH - RIGHT}`),
        text({ x: LEFT - 5, y: y(i, value) + 4 }, `${Number(value.toPrecision(1))}`, "end"),
      ]),
    );
    const foot = ticks.flatMap((n, i) => [
      axis(`M${x(n)} ${FOOT - 4}v4`),
      text({ x: x(n), y: FOOT + 12 }, `${i ? "" : "update "}${whole(n)}`, i ? "middle" : "start"),
    ]);
    const label =
      "Losses, attention weight in the boxes, and learning rate against the update, on a logarithmic scale";
    const svg = shape(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${FOOT + 16}`, role: "img", class: "curves", "aria-label": label },
      ...scales,
      ...panels.flatMap(({ title, lines }) => [title, ...lines.flat()]),
      cursor,
      moment,
      dots,
      ...foot,
    );

    function show(now, curves, head) {
      const here = x(updates[now]);
      const told = (i, j, digits = 2) => curves[i][j][now].toFixed(digits);
      const loss = shape("tspan", { class: "line0" }, `development loss ${told(0, 0)}`);
      const name = head
        ? headName(head).toLowerCase()
        : `mean of layer ${film.frames[0].weights.length}`;
      const titles = [
        [loss, ", ", shape("tspan", {}, `training loss ${told(0, 1)}`)],
        [`weight in the boxes ${told(1, 0)} (${name})`],
        [`learning rate ${told(2, 0, 6)}`],
      ];
      for (const [i, { title, lines }] of panels.entries()) {
        title.replaceChildren(...titles[i]);
        for (const [j, [later, sooner]] of lines.entries()) {
          const points = curves[i][j].map(
            (value, n) => `${x(updates[n]).toFixed(1)},${y(i, value).toFixed(1)}`,
          );
          later.setAttribute("points", points.slice(now).join(" "));
          sooner.setAttribute("points", points.slice(0, now + 1).join(" "));
        }
      }
      const found = momentOf(curves[1][0]);
      const [mark, when] = [
        x(updates[found]),
        `finds its words: update ${whole(updates[found] ?? 0)}`,
      ];
      const at = { x: mark - 4, y: bottomOf(1) - HIGH + 12, "text-anchor": "end" };
      const line = shape("path", { d: `M${mark} ${bottomOf(1)}v${-HIGH}` });
      moment.replaceChildren(...(found < 0 ? [] : [line, shape("text", at, when)]));
      cursor.setAttribute("d", panels.map((_, i) => `M${here} ${bottomOf(i)}v${-HIGH}`).join(""));
      const dot = (i, j) => ({ class: `line${j}`, cx: here, cy: y(i, curves[i][j][now]), r: 3.5 });
      const shown = curves.flatMap((lines, i) => lines.map((_, j) => shape("circle", dot(i, j))));
      dots.replaceChildren(...shown);
    }
    // The checkpoint that is nearest to a pointer.
    function nearest({ clientX }) {
      const { left, width } = svg.getBoundingClientRect();
      const far = updates.map((update) => Math.abs(x(update) - (WIDTH * (clientX - left)) / width));
      return far.indexOf(Math.min(...far));
    }
    return { svg, show, nearest };
  }

  const square = (x, y, more) => shape("rect", { ...more, x, y, width: 1, height: 1 });
  const drawCells = ({ source, target }) =>
    target.flatMap((_, q) => source.map((_, k) => square(k, q)));
  function paint(cells, rows) {
    for (const [i, weight] of rows.flat().entries()) {
      cells[i].setAttribute("fill-opacity", weight.toFixed(2));
    }
  }

  // The weights of one head, with boxes around words that translate each other.
  function drawMatrix({ source, target, pairs }, cells) {
    const [width, height] = [source.length, target.length];
    const at = (i) => (i + 0.5) * CELL;
    const turned = (k) => `translate(${NAMES + at(k) + 4} ${TOP - 5}) rotate(-90)`;
    const left = (q) => ({ x: NAMES - 6, y: TOP + at(q) + 4, "text-anchor": "end", lang: "de" });
    const boxes = Object.entries(pairs).flatMap(([q, ks]) =>
      ks.map((k) => square(k, q, { class: "pair" })),
    );
    const frame = shape("rect", { class: "frame", width, height });
    const place = { transform: `translate(${NAMES} ${TOP}) scale(${CELL})` };
    const size = `0 0 ${NAMES + CELL * width + 2} ${TOP + CELL * height + 2}`;
    return shape(
      "svg",
      { viewBox: size, role: "img", class: "matrix" },
      ...source.map((word, k) => shape("text", { transform: turned(k), lang: "en" }, plain(word))),
      ...target.map((word, q) => shape("text", left(q), plain(word))),
      shape("g", place, frame, ...cells, ...boxes),
    );
  }

  // A small matrix for each head, the last layer on top; `show` paints them, `choose` marks one.
  function drawHeads({ source, target, frames }, take) {
    const [{ weights }] = frames;
    const { length } = weights;
    const viewBox = `0 0 ${source.length} ${target.length}`;
    const small = { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" };
    const tile = (head) => {
      const cells = drawCells({ source, target });
      const made = headButton(head, length, take, shape("svg", small, ...cells));
      return Object.assign(made, { cells });
    };
    const tiles = weights.map((heads, layer) => heads.map((_, i) => tile([layer, i])));
    const layers = tiles.map((row, layer) =>
      make("div", {}, make("span", { textContent: `layer ${layer + 1}` }), ...row),
    );
    const group = { className: "heads", role: "radiogroup", ariaLabel: "Attention heads" };
    const all = headButton(null, length, take, headName(null, length));
    const element = make("div", group, all, ...layers.reverse());
    rove(element);
    const show = (frame) => {
      for (const { head, cells } of tiles.flat()) paint(cells, tableOf(frame, head));
    };
    const choose = (chosen) => {
      for (const each of [all, ...tiles.flat()]) check(each, String(each.head) === String(chosen));
    };
    return { element, show, choose };
  }

  // ------------------------------------------------------------------------------ the film

  // Play, a slider and a counter. `show` draws a checkpoint, and `said` speaks at the end only;
  // a checkpoint that `isMoment` stays longer, and the film opens there. Play then begins anew.
  function drawPlayer({ frames }, { box, said, show, isMoment }) {
    const last = frames.length - 1;
    const moment = frames.findIndex((_, i) => isMoment(i));
    let [now, timer] = [Math.max(0, moment), null];
    let untouched = true;
    const toggle = () => (timer ? pause() : start());
    const play = button({ className: "run", textContent: "Play", onclick: toggle });
    const place = slider(last, "Checkpoint", move);
    const counter = make("span", { className: "counter" });

    function move(index) {
      untouched = false;
      pause();
      now = index;
      update();
    }
    function start() {
      if (now === last || untouched) now = 0;
      untouched = false;
      box.scrollIntoView({ block: "nearest", behavior: isCalm() ? "auto" : "smooth" });
      play.textContent = "Pause";
      said.ariaLive = "off";
      wait();
      update();
    }
    function wait() {
      const pace = isCalm() ? 3 * PACE : PACE;
      timer = setTimeout(next, isMoment(now) ? 5 * pace : pace);
    }
    function next() {
      now++;
      if (now === last) pause();
      else wait();
      update();
    }
    function pause() {
      clearTimeout(timer);
      timer = null;
      play.textContent = "Play";
      said.ariaLive = "polite";
    }
    function update() {
      show(now);
      counter.textContent = place.ariaValueText = `update ${whole(frames[now].update)}`;
      place.value = now;
    }
    return { element: controls(play, place, counter), move, update };
  }

  // The translation of a checkpoint, below the sentence; words that the last one has too are bold.
  function drawText({ sentences, frames }) {
    const written = make("dd", { lang: "de" });
    const show = ({ translations }) => {
      const words = compare(translations.at(-1), frames.at(-1).translations.at(-1));
      const span = ([word, right]) =>
        make("span", { className: right ? "right" : "", textContent: `${word} ` });
      written.replaceChildren(...words.map(span));
    };
    const source = make("dt", { lang: "en", textContent: sentences.at(-1) });
    return { element: make("dl", {}, source, written), show };
  }

  function fill(box) {
    const film = read(dataOf(box));
    let [chosen, curves] = [null, curvesOf(film, null)];
    const said = make("p", { className: "note", role: "status" });
    const drawing = drawCurves(film);
    const cells = drawCells(film);
    const matrix = drawMatrix(film, cells);
    const text = drawText(film);
    const heads = drawHeads(film, look);
    const isMoment = (now) => now === momentOf(curves[1][0]);
    const player = drawPlayer(film, { box, said, show, isMoment });
    drawing.svg.onpointerdown = drawing.svg.onpointermove = (event) => {
      if (event.buttons) player.move(drawing.nearest(event));
    };

    function look(head) {
      [chosen, curves] = [head, curvesOf(film, head)];
      heads.choose(head);
      player.update();
    }
    function show(now) {
      const frame = film.frames[now];
      drawing.show(now, curves, chosen);
      text.show(frame);
      heads.show(frame);
      paint(cells, tableOf(frame, chosen));
      const weight = curves[1][0][now].toFixed(2);
      matrix.ariaLabel = `${headName(chosen, frame.weights.length)}: attention of the German words to the English words; the weight in the boxes is ${weight}`;
      said.textContent = tell(frame, film.pairs);
    }

    const told = (className, textContent) => make("p", { className, textContent });
    const task =
      "Boxes mark words that translate each other. Press Play to see attention move into them.";
    const key = make("p", {}, make("b", { textContent: "Bold:" }), " words of the last checkpoint");
    const left = make("div", {}, matrix, text.element, key);
    const right = make("div", {}, drawing.svg, heads.element);
    Object.assign(box, { role: "group", ariaLabel: "A training, checkpoint by checkpoint" });
    box.replaceChildren(
      told("title", "A small translator learns where to look"),
      told("", task),
      player.element,
      said,
      make("div", { className: "columns" }, left, right),
    );
    look(null);
  }

  for (const box of document.querySelectorAll("div.film")) fill(box);
  return { read, aligned, momentOf, curvesOf, most, scalesOf, compare, tell };
})();
