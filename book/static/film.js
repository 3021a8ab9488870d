// A training as a film: its losses, three translations and the heads of the decoder at some of its
// checkpoints. `python -m benchmarks.film` has written what the page holds.
(() => {
  const { range, make, shape, rove } = window.elements;
  const PACE = 500; // milliseconds for each checkpoint
  const [WIDTH, LEFT, RIGHT, PANEL, HIGH] = [352, 44, 20, 70, 43]; // of the curves, each panel, its drawing
  const [CELL, NAMES, TOP] = [21, 104, 62]; // of the matrix of weights
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const whole = (number) => number.toLocaleString("en");
  const plain = (word) => (word === "<EOS>" ? "end" : word);

  function fill(box) {
    const { sentences, source, target, pairs, frames } = JSON.parse(box.querySelector("script").textContent);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const last = frames.length - 1, [N, h] = [frames[0].weights.length, frames[0].weights[0].length];
    const mean = (heads) => target.map((_, q) => source.map((_, k) => sum(heads.map((rows) => rows[q][k])) / h));
    for (const frame of frames) {
      frame.weights = frame.weights.map((heads) => heads.map((rows) => rows.map((row) => row.split(" ").map((n) => n / 100))));
    }
    // How much of its weight a head gives to the English words that a German word translates.
    const aligned = (rows) => sum(Object.entries(pairs).map(([q, ks]) => sum(ks.map((k) => rows[q][k])))) / Object.keys(pairs).length;
    const rowsOf = (frame, head) => (head ? frame.weights[head[0]][head[1]] : mean(frame.weights[N - 1]));
    const nameOf = (head) => (head ? `Layer ${head[0] + 1}, head ${head[1] + 1}` : `Layer ${N}, mean of its heads`);
    // It opens where the last layer has found the most translations; the first Play begins at the beginning.
    const found = frames.map((frame) => aligned(rowsOf(frame, null)));
    let now = found.indexOf(Math.max(...found)), chosen = null, timer = null, seen = false;

    // ------------------------------------------------------------------------------- elements

    const play = make("button", { type: "button", textContent: "Play", onclick: () => (timer ? pause() : start()) });
    const slider = make("input", { type: "range", max: last, ariaLabel: "Checkpoint",
      oninput: () => { pause(); go(slider.valueAsNumber); },
      onkeydown: (event) => event.stopPropagation() }); // arrows would turn the page
    const counter = make("span", { className: "counter" });
    const said = make("p", { className: "note", role: "status" });

    const log = frames.map(({ update }) => Math.log(update)), span = log[last] - log[0];
    const x = (value) => LEFT + (WIDTH - LEFT - RIGHT) * (value - log[0]) / span;
    const panels = [["development loss", "training loss"], ["weight"], ["learning rate"]].map((names, i) => {
      const title = shape("text", { x: LEFT, y: PANEL * i + 12 });
      const lines = names.map((_, j) => ["later", "sooner"].map((part) => shape("polyline", { class: `${part} line${j}` })));
      return { title, lines, bottom: PANEL * (i + 1) - 4 };
    });
    const cursor = shape("path", { class: "cursor" }), dots = shape("g", { class: "dots" });
    const most = (numbers) => { // rounded up to one digit
      const unit = 10 ** Math.floor(Math.log10(Math.max(...numbers)));
      return Math.ceil(Math.max(...numbers) / unit) * unit;
    };
    const tops = [most(frames.flatMap((frame) => [frame.dev_loss, frame.train_loss])), 1, most(frames.map((frame) => frame.learning_rate))];
    const scales = panels.flatMap(({ bottom }, i) => [0, tops[i]].flatMap((value, j) => [
      shape("path", { d: `M${LEFT} ${bottom - j * HIGH}H${WIDTH - RIGHT}`, class: "axis" }),
      shape("text", { x: LEFT - 5, y: bottom - j * HIGH + 4, class: "tick", "text-anchor": "end" }, `${Number(value.toPrecision(1))}`),
    ]));
    const tens = range(7).map((n) => 10 ** n).filter((n) => n >= frames[0].update && n <= frames[last].update);
    const ticks = [...tens.filter((n) => x(log[last]) - x(Math.log(n)) > 45), frames[last].update];
    const foot = 3 * PANEL;
    const curves = shape("svg", { viewBox: `0 0 ${WIDTH} ${foot + 16}`, role: "img", class: "curves",
      "aria-label": "Losses, attention weight in the boxes, and learning rate against the update, on a logarithmic scale" },
      ...scales, ...panels.flatMap(({ title, lines }) => [title, ...lines.flat()]), cursor, dots,
      ...ticks.flatMap((n, i) => [
        shape("path", { d: `M${x(Math.log(n))} ${foot - 4}v4`, class: "axis" }),
        shape("text", { x: x(Math.log(n)), y: foot + 12, class: "tick", "text-anchor": "middle" }, `${i ? "" : "update "}${whole(n)}`)]));
    curves.onpointerdown = curves.onpointermove = (event) => {
      if (!event.buttons) return;
      const { left, width } = curves.getBoundingClientRect(), at = WIDTH * (event.clientX - left) / width;
      const far = log.map((value) => Math.abs(x(value) - at));
      pause();
      go(far.indexOf(Math.min(...far)));
    };

    const texts = sentences.map((sentence) => [make("dt", { lang: "en", textContent: sentence }), make("dd", { lang: "de" })]);
    const key = make("p", {}, make("b", { textContent: "Bold:" }), " words that the last checkpoint writes too");
    const translations = make("dl", {}, ...texts.flat());

    const cells = () => target.flatMap((_, q) => source.map((_, k) => shape("rect", { x: k, y: q, width: 1, height: 1 })));
    const paint = (rects, rows) => rows.flat().forEach((weight, i) => rects[i].setAttribute("fill-opacity", weight.toFixed(2)));
    const large = cells(), at = (i) => (i + 0.5) * CELL;
    const matrix = shape("svg", { viewBox: `0 0 ${NAMES + CELL * source.length + 2} ${TOP + CELL * target.length + 2}`, role: "img", class: "matrix" },
      ...source.map((word, k) => shape("text", { transform: `translate(${NAMES + at(k) + 4} ${TOP - 5}) rotate(-90)`, lang: "en" }, plain(word))),
      ...target.map((word, q) => shape("text", { x: NAMES - 6, y: TOP + at(q) + 4, "text-anchor": "end", lang: "de" }, plain(word))),
      shape("g", { transform: `translate(${NAMES} ${TOP}) scale(${CELL})` }, shape("rect", { class: "frame", width: source.length, height: target.length }), ...large,
        ...Object.entries(pairs).flatMap(([q, ks]) => ks.map((k) => shape("rect", { class: "pair", x: k, y: q, width: 1, height: 1 })))));
    const title = make("p", { className: "title", textContent: "A small translator learns where to look" });
    const task = make("p", { textContent: "Press Play, or move the slider: the weight of attention moves into the boxes, which mark words that translate each other." });
    const caption = make("p", { textContent: "Where each German word looks" });

    const tiles = [];
    const tile = (head, ...children) => {
      const choose = () => { chosen = head; look(); };
      const one = make("button", { type: "button", role: "radio", ariaLabel: nameOf(head), title: nameOf(head), onfocus: choose, onclick: choose }, ...children);
      tiles.push([one, head]);
      return one;
    };
    const rects = new Map();
    const heads = make("div", { className: "heads", role: "radiogroup", ariaLabel: "Attention heads" }, tile(null, nameOf(null)),
      ...range(N).reverse().map((layer) => make("div", {}, make("span", { textContent: `layer ${layer + 1}` }), ...range(h).map((i) => {
        const own = cells();
        const one = tile([layer, i], shape("svg", { viewBox: `0 0 ${source.length} ${target.length}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...own));
        rects.set(one, own);
        return one;
      }))));

    // ---------------------------------------------------------------------------- one checkpoint

    const panelValues = () => [
      [frames.map((frame) => frame.dev_loss), frames.map((frame) => frame.train_loss)],
      [frames.map((frame) => aligned(rowsOf(frame, chosen)))],
      [frames.map((frame) => frame.learning_rate)],
    ];
    let values = panelValues();
    const told = (i, j, digits = 2) => values[i][j][now].toFixed(digits);

    // What depends on the head that is chosen.
    function look() {
      values = panelValues();
      for (const [one, head] of tiles) {
        one.ariaChecked = String(head) === String(chosen);
        one.tabIndex = one.ariaChecked === "true" ? 0 : -1;
      }
      show();
    }

    function show() {
      const { update, translations: written, weights } = frames[now];
      const y = (i, value) => panels[i].bottom - HIGH * value / tops[i];
      panels.forEach(({ lines }, i) => lines.forEach((parts, j) => {
        const points = values[i][j].map((value, n) => `${x(log[n]).toFixed(1)},${y(i, value).toFixed(1)}`);
        parts[0].setAttribute("points", points.slice(now).join(" "));
        parts[1].setAttribute("points", points.slice(0, now + 1).join(" "));
      }));
      const titles = [
        [shape("tspan", { class: "line0" }, `development loss ${told(0, 0)}`), ", ", shape("tspan", {}, `training loss ${told(0, 1)}`)],
        [`weight in the boxes ${told(1, 0)} (${chosen ? nameOf(chosen).toLowerCase() : `mean of layer ${N}`})`],
        [`learning rate ${told(2, 0, 6)}`],
      ];
      panels.forEach(({ title }, i) => title.replaceChildren(...titles[i]));
      const here = x(log[now]);
      cursor.setAttribute("d", panels.map(({ bottom }) => `M${here} ${bottom}v${-HIGH}`).join(""));
      dots.replaceChildren(...values.flatMap((lines, i) => lines.map((line, j) => shape("circle", { class: `line${j}`, cx: here, cy: y(i, line[now]), r: 3.5 }))));

      texts.forEach(([, german], i) => {
        const left = frames[last].translations[i].split(" "); // each word counts as often as it stands there
        german.replaceChildren(...written[i].split(" ").map((word) => {
          const found = left.indexOf(word);
          if (found >= 0) left.splice(found, 1);
          return make("span", { className: found < 0 ? "" : "right", textContent: `${word} ` });
        }));
      });
      for (const [one, head] of tiles) if (head) paint(rects.get(one), rowsOf(frames[now], head));
      paint(large, rowsOf(frames[now], chosen));
      matrix.setAttribute("aria-label", `${nameOf(chosen)}: attention of the German words to the English words; the weight in the boxes is ${told(1, 0)}`);

      const sure = weights.flat().filter((rows) => aligned(rows) > 0.5).length;
      said.textContent = `After ${whole(update)} updates the development loss is ${told(0, 0)}, and ${sure || "none"} of the ${N * h} heads ${sure < 2 ? "has" : "have"} most of the weight in the boxes.`;
      counter.textContent = `update ${whole(update)}`;
      slider.value = now;
      slider.setAttribute("aria-valuetext", counter.textContent);
    }

    // ------------------------------------------------------------------------------------ play

    function go(index) {
      seen = true;
      now = index;
      show();
    }
    function start() {
      if (now === last || !seen) go(0);
      play.textContent = "Pause";
      said.ariaLive = "off"; // only the end is said
      timer = setInterval(() => {
        if (now + 1 === last) pause();
        go(now + 1);
      }, calm ? 3 * PACE : PACE);
    }
    function pause() {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
      said.ariaLive = "polite";
    }

    Object.assign(box, { role: "group", ariaLabel: "A training, checkpoint by checkpoint" });
    box.replaceChildren(title, task, make("p", { className: "controls" }, play, slider, counter), said,
      make("div", { className: "columns" }, make("div", {}, matrix, caption, heads), make("div", {}, curves, key, translations)));
    rove(heads);
    look();
  }

  document.querySelectorAll("div.film").forEach(fill);
})();
