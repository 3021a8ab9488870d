// A training as a film: where the heads of the decoder look at some of its checkpoints, its loss,
// and a translation. `python -m benchmarks.film` has written what the page holds.
window.film = (() => {
  const { range, sum, mean, tableOf, plain, headName, dataOf, isCalm } = window.elements;
  const { make, button, shape, taper, controls, slider, choice } = window.elements;
  const PACE = 500; // milliseconds for each checkpoint
  const [WIDTH, LEFT, RIGHT, FOOT] = [358, 26, 12, 246]; // of the curves
  const PANELS = [
    [30, 84],
    [158, 84],
  ]; // their top and height: of the weight and of the loss
  const [SIDES, ROW, BROADEST] = [[68, 246], 22, 20]; // of the ribbons
  const whole = (number) => number.toLocaleString("en");

  // ---------------------------------------------------------------------------------- numbers

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

  // How much of its weight a head gives to the English words that a German word translates; and the
  // least and the most if each word has those of another, the next one or a later one.
  function sharesOf(rows, pairs) {
    const [words, sources] = [Object.keys(pairs), Object.values(pairs)];
    const toward = (q, ks) => sum(ks.map((k) => rows[q][k]));
    const [own, ...others] = range(sources.length).map((shift) =>
      mean(words.map((q, i) => toward(q, sources[(i + shift) % sources.length]))),
    );
    return [own, Math.min(...others), Math.max(...others)];
  }

  // The largest of some numbers, rounded up to one digit.
  function most(numbers) {
    const unit = 10 ** Math.floor(Math.log10(Math.max(...numbers)));
    return Math.ceil(Math.max(...numbers) / unit) * unit;
  }

  // Places in the drawing: of an update on a logarithmic scale, and of a value in a panel.
  function scalesOf({ frames, pairs }) {
    const updates = frames.map(({ update }) => update);
    const [first, last] = [updates[0], updates.at(-1)];
    const heads = frames.flatMap(({ weights }) => weights.flat());
    const shares = heads.map((rows) => sharesOf(rows, pairs)[0]);
    const tops = [shares, frames.map(({ loss }) => loss)].map(most);
    const room = WIDTH - LEFT - RIGHT;
    const x = (update) => LEFT + (room * Math.log(update / first)) / Math.log(last / first);
    const y = (i, value) => PANELS[i][0] + PANELS[i][1] * (1 - value / tops[i]);
    return { updates, tops, x, y };
  }

  // --------------------------------------------------------------------------------- drawings

  // The curves of a head's weight on what a word translates and of the loss; `show` moves them to a checkpoint.
  function drawCurves(film) {
    const { updates, tops, x, y } = scalesOf(film);
    const [first, last, end] = [updates[0], updates.at(-1), WIDTH - RIGHT];
    const axis = (d) => shape("path", { d, class: "axis" });
    const text = (x, y, said, anchor, name = "") =>
      shape("text", { x, y, "text-anchor": anchor, class: name }, said);
    const scales = tops.flatMap((top, i) =>
      [0, top].flatMap((value) => [
        axis(`M${LEFT} ${y(i, value)}H${end}`),
        text(LEFT - 5, y(i, value) + 4, `${Number(value.toPrecision(1))}`, "end"),
      ]),
    );
    const names = ["attention to what a word translates", "loss (nats)"].map((name, i) =>
      text(0, PANELS[i][0] - (i ? 16 : 14), name, "start", `line${i}`),
    );
    const foot = [first, 100, ...film.moment].map((n, i) =>
      text(x(n) + (i > 1 ? 8 * i - 20 : 0), FOOT + 14, whole(n), "middle", i > 1 ? "now" : ""),
    );
    const far = [whole(last), "update (log scale)"];
    foot.push(...far.map((said, i) => text(WIDTH, FOOT + 14 + 18 * i, said, "end")));
    const [from, to] = film.moment.map(x);
    const between = `M${from} ${PANELS[0][0]}H${to}V${FOOT}H${from}Z`;
    const moment = shape("path", { class: "key", d: between, "fill-opacity": 0.15 });
    const cursor = axis("");
    const band = shape("path", { class: "band" });
    const about = text(end, 0, "to other words", "end");
    const lines = range(2).map((i) =>
      ["later", "sooner"].map((part) => shape("polyline", { class: `${part} line${i}` })),
    );
    const dots = range(2).map((i) => shape("circle", { class: `line${i}`, r: 4 }));
    const values = range(2).map((i) => shape("text", { class: `now line${i}` }));
    const label = "Attention to what a word translates, and loss, against the update";
    const svg = shape(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${FOOT + 36}`, role: "img", class: "curves", "aria-label": label },
      ...[moment, band, ...scales, ...names, cursor, ...lines.flat(), about, ...dots, ...values],
      ...foot,
    );

    function show(now, head) {
      const shares = film.frames.map((frame) => sharesOf(tableOf(frame, head), film.pairs));
      const at = (i, value, n) => `${x(updates[n]).toFixed(1)},${y(i, value).toFixed(1)}`;
      const [low, high] = [1, 2].map((edge) => shares.map((all, n) => at(0, all[edge], n)));
      band.setAttribute("d", `M${[...low, ...high.reverse()].join("L")}Z`);
      const above = shares.filter((_, n) => updates[n] > film.moment[0]).map(([, , top]) => top);
      about.setAttribute("y", y(0, Math.max(...above)) - 5);
      cursor.setAttribute("d", `M${x(updates[now])} ${PANELS[0][0]}V${FOOT}`);
      const curves = [shares.map(([own]) => own), film.frames.map(({ loss }) => loss)];
      for (const [i, curve] of curves.entries()) {
        const points = curve.map((value, n) => at(i, value, n));
        const [later, sooner] = lines[i];
        later.setAttribute("points", points.slice(now).join(" "));
        sooner.setAttribute("points", points.slice(0, now + 1).join(" "));
        const [cx, cy] = points[now].split(",").map(Number);
        const isLeft = i ? cx > WIDTH - 60 : cx > LEFT + 40; // one curve rises, the other falls
        const places = {
          x: cx + (isLeft ? -6 : 6),
          y: cy - 7,
          "text-anchor": isLeft ? "end" : "start",
        };
        values[i].textContent = curve[now].toFixed(2);
        for (const [name, value] of Object.entries(places)) values[i].setAttribute(name, value);
        for (const [name, value] of Object.entries({ cx, cy })) dots[i].setAttribute(name, value);
      }
      return curves[0][now];
    }
    return { svg, show };
  }

  // Where one head looks in the source as each word of a correct translation is predicted: ribbons
  // from the English words at the left, blue and on top from those that the German word translates.
  function drawLooks({ source, target, pairs }) {
    const [from, to] = SIDES;
    const y = (i) => 44 + ROW * i;
    const text = (x, y, said, anchor, lang) =>
      shape("text", { x, y, "text-anchor": anchor, ...(lang && { lang }) }, said);
    const words = source.map((word, k) => text(from - 6, y(k) + 5, plain(word), "end", "en"));
    const found = target.map((word, q) => text(to + 6, y(q) + 5, plain(word), "start", "de"));
    const isOwn = ([q, k]) => Boolean(pairs[q]?.includes(k));
    const ends = target.flatMap((_, q) => source.map((_, k) => [q, k]));
    ends.sort((a, b) => isOwn(a) - isOwn(b));
    const ribbons = ends.map((pair) => shape("path", { class: isOwn(pair) ? "own" : "other" }));
    const heads = [from - 6, WIDTH].map((x, i) =>
      text(x, 16, ["English", "correct German word"][i], "end"),
    );
    const svg = shape(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${FOOT + 36}`, role: "img", class: "looks" },
      ...[heads, ribbons, words, found].flat(),
    );
    function show(rows) {
      for (const [i, [q, k]] of ends.entries()) {
        const outline = taper([from, y(k)], [to, y(q)], BROADEST * rows[q][k], true);
        ribbons[i].setAttribute("d", outline);
      }
      for (const [q, word] of found.entries()) {
        word.classList.toggle("now", sum((pairs[q] ?? []).map((k) => rows[q][k])) > 0.5);
      }
    }
    return { svg, show };
  }

  // ------------------------------------------------------------------------------ the film

  // Play and a slider; `show` draws a checkpoint and says what it shows. The film opens at the end of
  // its moment, where it also stays longer; Play then begins anew.
  function drawPlayer({ frames, moment }, box, show) {
    const last = frames.length - 1;
    const found = frames.findIndex(({ update }) => update === moment[1]);
    let [now, timer, untouched] = [found, null, true];
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
      wait();
      update();
    }
    function wait() {
      const pace = isCalm() ? 3 * PACE : PACE;
      timer = setTimeout(next, now === found ? 5 * pace : pace);
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
    }
    function update() {
      counter.textContent = `update ${whole(frames[now].update)}`;
      place.value = now;
      place.ariaValueText = `${counter.textContent}, ${show(now)}`;
    }
    return { parts: [play, place, counter], update };
  }

  function fill(box) {
    const film = read(dataOf(box));
    const { frames } = film;
    const [curves, looks] = [drawCurves(film), drawLooks(film)];
    const given = make("dt", {}, `“${film.sentence}” →`);
    const [written, meant] = [make("dd", { lang: "de" }), make("dd")];
    const player = drawPlayer(film, box, show);
    const layers = frames[0].weights;
    const each = layers.flatMap((heads, layer) => heads.map((_, i) => [layer, i]));
    const named = [null, ...each.reverse()].map((head) => [headName(head, layers.length), head]);
    const chosen = choice("Attention of", named, 0, player.update);

    function show(now) {
      const rows = tableOf(frames[now], chosen.value);
      const weight = curves.show(now, chosen.value).toFixed(2);
      looks.show(rows);
      written.textContent = frames[now].translation;
      meant.textContent = `In English: ${frames[now].english}`;
      const told = `attention to what a word translates ${weight}`;
      looks.svg.ariaLabel = `Attention of each German word to the English words; ${told}`;
      return `${told}, loss ${frames[now].loss.toFixed(2)}`;
    }

    Object.assign(box, { role: "group", ariaLabel: "A training, checkpoint by checkpoint" });
    box.replaceChildren(
      box.querySelector(".chart-title"),
      controls(...player.parts, chosen),
      make("dl", {}, given, written, meant),
      make("div", { className: "columns" }, looks.svg, curves.svg),
    );
    player.update();
  }

  for (const box of document.querySelectorAll("div.film")) fill(box);
  return { read, sharesOf, most, scalesOf };
})();
