// Draws the charts of a page, in the colors of the theme, and draws them again when it changes.
(() => {
  const { make, button, controls } = window.elements;
  const here = document.currentScript.src;
  const MENU = 38; // width of the menu beside an enlarged chart

  const dark = () => document.documentElement.dataset.theme === "dark";

  // A color of the style sheet, in the theme of the page.
  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function colors() {
    const [text, lines] = [color("chart-text"), color("chart-lines")];
    const labels = { labelColor: text, titleColor: text };
    return {
      background: "transparent",
      title: { color: text, subtitleColor: text },
      axis: { ...labels, gridColor: lines, domainColor: lines, tickColor: lines },
      legend: labels,
      header: labels,
      text: { color: text },
      rule: { color: text },
      view: { stroke: lines },
    };
  }

  // Both blues of the palette are lighter in the dark, where the first one would be dull; so what is
  // written on it is not white.
  function lightenBlues(part) {
    const blues = { [color("blue")]: color("sky"), [color("sky")]: "#B9DFF7", white: "#18181b" };
    const lighten = (part) => {
      for (const [key, value] of Object.entries(part)) {
        if (blues[value]) part[key] = blues[value];
        else if (value && typeof value === "object" && key !== "datasets" && key !== "data")
          lighten(value);
      }
    };
    lighten(part);
  }

  // What is much has the color of the layer, and what is little that of the page.
  function inTheme(spec) {
    if (dark()) lightenBlues(spec);
    const layer = color("layer");
    const ramp = [`${layer}00`, layer];
    const diverging = [layer, "#80808000", color("warm")];
    Object.assign(spec.config?.range ?? {}, { heatmap: ramp, ramp, diverging });
    Object.assign(spec.config?.mark ?? {}, { color: layer });
  }

  // On a phone, the words of an attention drawing stand in two columns: its rows become columns.
  function turn(spec) {
    spec.width = "container";
    spec.height = spec.usermeta.turned;
    spec.params.find(({ name }) => name === "turned").value = true;
    for (const { encoding } of spec.layer) {
      encoding.y.scale.domain = [...spec.usermeta.down];
      for (const end of ["", "2"]) {
        const [one, two] = [`x${end}`, `y${end}`];
        [encoding[one], encoding[two]] = [encoding[two], encoding[one]];
      }
      for (const axis of ["x", "y"]) encoding[axis].scale.domain.reverse();
    }
  }

  // On a phone, the names of rows stand above them, and each row takes `step` pixels.
  function lift(part, step) {
    if (part?.height?.step) part.height = { step };
    if (/nominal|ordinal/.test(part?.y?.type)) {
      part.y.axis = {
        ...part.y.axis,
        labelAlign: "left",
        labelBaseline: "bottom",
        labelOffset: -7,
        labelPadding: 0,
        labelLimit: 358,
        ticks: false,
        domain: false,
      };
    }
    for (const [key, value] of Object.entries(part ?? {}))
      if (typeof value === "object" && !key.startsWith("data")) lift(value, step);
  }

  // Charts side by side need room; else they stand one below the other. They are as wide as there is
  // room, of which those side by side share the rest.
  function stack(spec) {
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  }
  function widen({ hconcat, vconcat }, rest) {
    const sized = (hconcat ?? vconcat ?? []).filter(({ width }) => width > 0);
    if (Math.abs(rest) <= 4) return false;
    for (const part of sized) part.width += hconcat ? rest / sized.length : rest;
    return sized.length > 0;
  }

  // A narrow chart gets a narrow legend, and a title in several lines.
  function fitPhone(spec, width) {
    const { turned, above, height, columns = 1 } = spec.usermeta ?? {};
    const narrow = (part) => {
      for (const [key, value] of Object.entries(part ?? {})) {
        if (key === "legend" && value)
          Object.assign(
            value,
            turned
              ? { columns: 8, columnPadding: 12, titleOrient: "top", symbolSize: 196 }
              : { columns },
          );
        if (typeof value === "object" && key !== "datasets") narrow(value);
      }
    };
    narrow(spec);
    if (height) spec.height = height;
    if (turned) turn(spec);
    if (above) lift(spec, above);
    const title = typeof spec.title === "string" ? { text: spec.title } : spec.title;
    if (typeof title?.text !== "string") return;
    const wrap = (text, letter) => {
      const lines = [""];
      for (const word of text.split(" ")) {
        const line = `${lines.at(-1)} ${word}`.trim();
        if (line.length * letter > width) lines.push(word);
        else lines[lines.length - 1] = line;
      }
      return lines;
    };
    spec.title = { ...title, text: wrap(title.text, 11) };
    if (title.subtitle)
      spec.title.subtitle = [title.subtitle].flat().flatMap((text) => wrap(text, 6.5));
  }

  // A finger drags the handle of a chart, and elsewhere scrolls the page. While it is dragged, the
  // handle hides nothing from the pointer.
  function letDrag(svg) {
    const handle = svg.querySelector(".handle_marks");
    const { style } = handle;
    handle.ontouchstart = (event) => event.preventDefault(); // touch-action needs a box
    svg.onpointerdown = ({ target, pointerId }) => {
      target.releasePointerCapture(pointerId);
      style.pointerEvents = "none";
    };
    svg.onpointerup = svg.onpointerleave = () => {
      style.pointerEvents = "";
    };
  }

  // Loads a script, by its place beside this one, once. Those that are not `async` run in their order.
  const scripts = {};
  function load(path, async = true) {
    scripts[path] ??= new Promise((resolve, reject) => {
      const src = new URL(path, here);
      const onerror = () => {
        delete scripts[path];
        reject(new Error(`expected a script at ${src}`));
      };
      document.head.append(make("script", { src, async, onload: resolve, onerror }));
    });
    return scripts[path];
  }
  window.loadScript = load;

  // What a chart shows: from the page, or for a large chart from a file that is loaded now.
  async function specOf(chart) {
    const name = chart.dataset.spec;
    if (!name) return JSON.parse(chart.querySelector("script").textContent);
    if (!window.chartSpecs?.[name]) await load(`../charts/${name}.js`);
    return structuredClone(window.chartSpecs[name]);
  }

  // Vega writes the number beside a slider with a hyphen, and without commas between thousands.
  function writeNumber(said) {
    let text = said.textContent.replace("-", "−");
    if (!text.includes(".")) text = text.replace(/\B(?=(\d{3})+$)/g, ",");
    if (text !== said.textContent) said.textContent = text;
  }

  // Draws a specification in an element; says what Vega made of it.
  async function drawIn(canvas, spec, options) {
    inTheme(spec);
    if (spec.hconcat && canvas.clientWidth < 600) stack(spec);
    if (canvas.clientWidth < 500) fitPhone(spec, canvas.clientWidth);
    // Expressions are interpreted (`ast`): the content policy forbids to compile them.
    const how = { config: colors(), renderer: "svg", ast: true, ...options };
    const embed = () => vegaEmbed(canvas, spec, how);
    let { view } = await embed();
    const room = canvas.clientWidth - (options.actions ? MENU : 0);
    if (widen(spec, room - canvas.querySelector("svg").width.baseVal.value)) {
      view.finalize();
      ({ view } = await embed());
    }
    if (JSON.stringify(spec).includes("> pointermove")) letDrag(canvas.querySelector("svg"));
    for (const said of (options.bind ?? canvas).querySelectorAll("input[type=range] + span")) {
      new MutationObserver(() => writeNumber(said)).observe(said, { childList: true });
      writeNumber(said);
    }
    return view;
  }

  // The title of a chart is text of the page, above the controls. One that changes is written there.
  function takeTitle(chart, spec) {
    const title = chart.previousElementSibling;
    if (!title?.matches(".chart-title")) return;
    const expr = spec.title.text?.expr;
    delete spec.title;
    if (!expr) return;
    spec.params = [...(spec.params ?? []), { name: "title", expr }];
    return (text) => {
      title.querySelector("strong").textContent = [text].flat().join(" ");
    };
  }

  async function drawNow(chart) {
    if (!chart.canvas) {
      chart.canvas = make("div");
      chart.lastChild.before(chart.canvas);
      chart.onscroll = () => reach([chart]);
    }
    const spec = await specOf(chart);
    const title = takeTitle(chart, spec);
    const length = spec.params?.find(({ name }) => name === "n"); // is kept from page to page
    if (length) length.value = Number(localStorage.getItem("n") ?? length.value);
    chart.view = await drawIn(chart.canvas, spec, { actions: false });
    if (length) chart.view.addSignalListener("n", (_, n) => localStorage.setItem("n", n));
    if (title) {
      title(chart.view.signal("title"));
      chart.view.addSignalListener("title", (_, text) => title(text));
    }
    const still = chart.querySelector(".still");
    if (still) replace(still, chart.canvas);
  }

  // The live chart takes the place of its picture, and takes on what was set above this.
  function replace(still, canvas) {
    const [set, all] = [still, canvas].map((box) => [...box.querySelectorAll("input, select")]);
    const at = set.indexOf(document.activeElement);
    still.remove();
    all[at]?.focus({ preventScroll: true });
    all.forEach((control, i) => {
      const { type, value, defaultValue, checked, defaultChecked, selectedOptions } = set[i] ?? {};
      if (["radio", "checkbox"].includes(type)) {
        if (checked !== defaultChecked && (checked || type === "checkbox")) control.click();
        return;
      }
      if (value === defaultValue || selectedOptions?.[0].defaultSelected) return;
      control.value = value;
      for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind));
    });
  }

  // The first sign of the reader: until then, a page whose first chart is a picture stays light.
  function moved() {
    const signs = ["scroll", "pointermove", "pointerdown", "keydown", "focusin", "beforeprint"];
    const listening = new AbortController();
    return new Promise((resolve) => {
      const onsign = ({ type, target }) => {
        if (type === "scroll" && target !== document) return; // a phone's line of stations
        listening.abort();
        resolve(type);
      };
      const options = { signal: listening.signal, passive: true, capture: true };
      for (const sign of signs) addEventListener(sign, onsign, options);
    });
  }

  // Every chart has its button at once; before it is alive, the button brings it to life.
  function offerEnlarging(charts) {
    for (const chart of charts) {
      const onclick = async () => {
        await load("vega.js");
        if (!chart.drawing) draw(chart);
        await chart.drawing;
        enlarge(chart);
      };
      chart.append(button({ className: "enlarge", textContent: "Enlarge", onclick }));
    }
  }

  // A chart as large as the window, set as on the page. Its shapes and letters grow with it, so each
  // event is told the place where it would be if they had not.
  async function enlarge(chart) {
    const dialog = make("dialog", { className: "enlarged", ariaLabel: chart.ariaLabel });
    dialog.innerHTML = '<form method="dialog"><button>Close</button></form><div></div><div></div>';
    const [form, controls, canvas] = dialog.children;
    document.body.append(dialog);
    dialog.showModal();
    const room = dialog.clientWidth - 32;
    canvas.style.width = `${Math.min(chart.clientWidth + MENU, room)}px`;
    const spec = await specOf(chart);
    const actions = { export: true, source: false, compiled: false, editor: false };
    const view = await drawIn(canvas, spec, { actions, bind: controls });
    canvas.querySelector("summary").setAttribute("aria-label", "Save this chart");
    const named = [...JSON.stringify(spec).matchAll(/"name":"(\w+)"/g)].map(([, name]) => name);
    const set = (name) => named.some((one) => name === one || name.startsWith(`${one}_`));
    view.setState(chart.view.getState({ signals: set, data: set }));
    const tell = view.tooltip();
    const tip = () => document.getElementById("vg-tooltip-element") ?? "";
    view.tooltip((handler, event, item, text) => {
      tell.call(handler, handler, { ...event?.seen }, item, text);
      dialog.append(tip()); // what is outside of the dialog lies behind it
    });

    const svg = canvas.querySelector("svg.marks");
    let scale = 1;
    const fit = new ResizeObserver(() => {
      const [width, height] = [svg.clientWidth, svg.clientHeight];
      const rest = dialog.clientHeight - form.offsetHeight - controls.offsetHeight - 48;
      scale = Math.max(1, Math.min((dialog.clientWidth - 32 - MENU) / width, rest / height));
      svg.style.transform = `scale(${scale})`;
      canvas.style.height = `${scale * height}px`;
      canvas.style.width = controls.style.width = `${scale * width + MENU}px`;
    });
    for (const each of [dialog, svg]) fit.observe(each);
    const move = (event) => {
      const { left, top } = svg.getBoundingClientRect();
      const { clientX, clientY } = event;
      event.seen = { clientX, clientY };
      Object.defineProperty(event, "clientX", { value: left + (clientX - left) / scale });
      Object.defineProperty(event, "clientY", { value: top + (clientY - top) / scale });
    };
    for (const what of ["down", "move", "up", "over", "out"]) {
      for (const kind of ["pointer", "mouse"]) dialog.addEventListener(kind + what, move, true);
    }
    for (const kind of ["click", "dblclick", "wheel"]) dialog.addEventListener(kind, move, true);
    dialog.addEventListener("close", () => {
      document.body.append(tip());
      view.finalize();
      fit.disconnect();
      dialog.remove();
    });
  }

  // One drawing of a chart after the other; it is `drawn` when none is under way.
  function draw(chart) {
    chart.classList.remove("drawn");
    const drawing = Promise.resolve(chart.drawing)
      .then(() => drawNow(chart))
      .then(() => {
        if (chart.drawing === drawing) chart.classList.add("drawn");
        reach([chart]);
      })
      .catch((error) => console.error("chart:", error));
    chart.drawing = drawing;
  }

  function drawAll(charts, printing) {
    const drawSeen = (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        draw(target);
      }
    };
    const seen = new IntersectionObserver(drawSeen, { rootMargin: "600px" });
    for (const chart of charts) seen.observe(chart);
    const again = () => {
      for (const chart of charts) if (chart.drawing) draw(chart);
    };
    const theme = { attributes: true, attributeFilter: ["data-theme"] };
    new MutationObserver(again).observe(document.documentElement, theme);
    const drawRest = () => {
      for (const chart of charts) if (!chart.drawing) draw(chart);
    };
    addEventListener("beforeprint", drawRest);
    if (printing) drawRest();
  }

  // The index of claims: a search, and a control each for section and verdict; the address may set them.
  function filter(index) {
    const rows = [...index.querySelectorAll("tbody tr")];
    const asked = new URLSearchParams(location.search);
    const selects = ["section", "verdict"].map((name) => {
      const options = [...new Set(rows.map((row) => row.dataset[name]))];
      if (name === "section") options.sort();
      const word = (value) => value.replace("'", "’").replace(/^\d/, "§$&");
      const offered = options.map((value) => new Option(word(value), value));
      const all = new Option(`All ${name}s`, "");
      const select = make("select", { name, ariaLabel: name, onchange: show }, all, ...offered);
      if (options.includes(asked.get(name))) select.value = asked.get(name);
      return select;
    });
    const label = "Search the claims";
    const search = make("input", { type: "search", placeholder: label, ariaLabel: label });
    Object.assign(search, { value: asked.get("words") ?? "", oninput: show });
    search.style.cssText = "flex: 1 0 100%; min-height: 32px; padding: 0 0.5rem";
    for (const select of selects) select.style.flex = "1 1 8rem";
    const count = make("output");
    function show() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = (row, { name, value }) => !value || row.dataset[name] === value;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        const found = words.every((word) => text.includes(word));
        row.hidden = !found || !selects.every((select) => fits(row, select));
      }
      for (const kind of index.querySelectorAll(".kind")) {
        kind.hidden = rows.every(
          ({ hidden, dataset }) => hidden || dataset.verdict !== kind.dataset.verdict,
        );
      }
      for (const table of index.querySelectorAll("table")) {
        const empty = !table.querySelector("tbody tr:not([hidden])");
        table.style.display = empty ? "none" : "";
      }
      const asks = words.length > 0 || selects.some((select) => select.value);
      for (const group of index.querySelectorAll("details")) {
        group.hidden = !group.querySelector("tbody tr:not([hidden])");
        if (asks && !group.hidden) group.open = true;
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} listed`;
    }
    index.prepend(controls(search, ...selects, count));
    show();
  }

  // What is too wide fades at the right, and can be scrolled with keys, which then turn no page. A
  // button breaks lines of code, but not rows of numbers, or shows all lines where a phone shows the
  // first ones. All boxes are measured before the first is changed, because a change lays out the
  // page anew.
  function reach(boxes) {
    fitFormulas(boxes.filter((box) => box.matches("div.math > div")));
    const measured = boxes.map((box) => {
      const { clientHeight, clientWidth, localName, scrollHeight, scrollLeft, scrollWidth } = box;
      return {
        box,
        wide: scrollWidth > clientWidth,
        tall: localName === "pre" && scrollHeight > clientHeight + 4,
        fades: scrollLeft + clientWidth < scrollWidth - 4,
      };
    });
    for (const { box, wide, tall, fades } of measured) {
      const breaks = wide && box.localName === "pre" && !box.querySelector(".aligned");
      if (wide) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
      box.classList.toggle("fades", fades);
      box.classList.toggle("tall", tall);
      if (tall || breaks) box.button ??= letWrap(box);
      if (!box.button) continue;
      box.button.hidden = !wide && !tall && !box.classList.contains("wrapped");
      if (wide || tall) box.button.textContent = tall ? "All lines" : "Wrap lines";
    }
  }

  // A formula that is a little wider than a phone becomes a little smaller.
  function fitFormulas(boxes) {
    if (innerWidth > 576) return;
    const alone = boxes.filter(({ children: [formula, more] }) => formula && !more);
    const shares = alone.map(({ clientWidth, scrollWidth }) => clientWidth / scrollWidth);
    for (const [i, { firstElementChild }] of alone.entries()) {
      if (firstElementChild.style.fontSize || shares[i] >= 1 || shares[i] <= 0.75) continue;
      firstElementChild.style.fontSize = `${Math.floor(100 * shares[i])}%`;
    }
  }

  // A docstring unfolds and folds.
  document.addEventListener("click", ({ target }) => {
    if (target.matches?.("button.docstring")) target.ariaExpanded = target.ariaExpanded !== "true";
  });

  function letWrap(box) {
    const onclick = () => {
      made.ariaPressed = box.classList.toggle("wrapped");
    };
    const made = button({ className: "wrap", ariaPressed: "false", onclick });
    box.after(made);
    return made;
  }

  // Boxes are measured when their size changes: also when they unfold. Every button has a name.
  function makeReachable() {
    const outputs = ".output:has(> table, > div > table), .output > [style*='overflow-x'], pre";
    const wide = `article :is(.pst-scrollable-table-container, ${outputs}), div.math > div`;
    const boxes = [...document.querySelectorAll(wide)];
    const sizes = new ResizeObserver((entries) => reach(entries.map(({ target }) => target)));
    for (const box of boxes) {
      box.onkeydown = (event) => {
        if (box.tabIndex === 0 && event.key.startsWith("Arrow")) event.stopPropagation();
      };
      box.onscroll = () => reach([box]);
      sizes.observe(box);
    }
    document.fonts.ready.then(() => reach(boxes));
  }

  // What a link leads to on this page; a % in it may begin no letter.
  function targetOf({ hash }) {
    const name = hash.slice(1);
    try {
      return document.getElementById(decodeURIComponent(name));
    } catch {
      return document.getElementById(name);
    }
  }

  // Whoever sees a page's end has read it; the browser keeps which pages these are.
  function markRead() {
    const entries = [...document.querySelectorAll(".rail [data-page]")];
    const here = entries.find((entry) => entry.querySelector("[aria-current=page]"))?.dataset.page;
    const kept = () => new Set(localStorage.getItem("read")?.split(","));
    const show = (read) => {
      for (const entry of entries) {
        if (!read.has(entry.dataset.page)) continue;
        if (!entry.classList.contains("read"))
          entry.querySelector("small > span").append(" · read");
        entry.classList.add("read");
      }
    };
    show(kept());
    const end = document.querySelector(".prev-next-footer");
    if (!here || !end) return;
    const seen = new IntersectionObserver(([{ isIntersecting }]) => {
      if (!isIntersecting) return;
      const read = kept().add(here);
      localStorage.setItem("read", [...read].join(","));
      show(read);
      seen.disconnect();
    });
    seen.observe(end);
  }

  // The rail names this page alone until it is asked for all pages of the part.
  function offerPages() {
    const rail = document.querySelector(".rail");
    const button = rail?.querySelector("button");
    button?.addEventListener("click", () => {
      const whole = rail.classList.toggle("whole");
      button.ariaExpanded = whole;
      button.lastChild.textContent = whole ? "show fewer" : "show all";
    });
  }

  // Marks in the contents the section that is read.
  function markPlace() {
    const places = [...document.querySelectorAll(".rail li li a")].map((link) => {
      const section = targetOf(link);
      return { link, heading: section?.querySelector("h2, h3, h4") };
    });
    const mark = () => {
      const above = ({ heading }) =>
        heading?.offsetParent && heading.getBoundingClientRect().top < innerHeight * 0.3;
      const here = places.findLast(above);
      for (const place of places) {
        place.link.classList.toggle("active", place === here);
        place.link.ariaCurrent = place === here ? "true" : null;
      }
    };
    let waiting;
    const wait = () => {
      clearTimeout(waiting);
      waiting = setTimeout(mark, 150);
    };
    addEventListener("scroll", wait, { passive: true });
  }

  // What a link leads to may be folded away.
  function unfold() {
    const target = targetOf(location);
    const folds = [target?.querySelector(":scope > .experiment, :scope.claim > details")];
    for (let at = target; at; at = at.parentElement) folds.push(at);
    const closed = folds.filter((fold) => fold?.matches("details:not([open])"));
    for (const fold of closed) fold.open = true;
    if (closed.length > 0) target.scrollIntoView();
  }

  // The experiments of a laboratory: all opened or closed at once. On paper all folds of results are open.
  function offerExperiments() {
    const experiments = [...document.querySelectorAll(".experiment")];
    const button = make("button", {}, "Open all");
    const openAll = (open) => {
      for (const experiment of experiments) experiment.open = open;
    };
    if (experiments.length > 1) document.querySelector("#laboratory > h2").after(button);
    button.addEventListener("click", () => openAll(experiments.some(({ open }) => !open)));
    for (const experiment of experiments) {
      experiment.addEventListener("toggle", () => {
        button.textContent = experiments.every(({ open }) => open) ? "Close all" : "Open all";
      });
    }
    let closed;
    addEventListener("beforeprint", () => {
      closed = [
        ...document.querySelectorAll(
          ":is(.experiment, .flush, :is(.claim, .beside > div) > details):not([open])",
        ),
      ];
      for (const fold of closed) fold.open = true;
    });
    addEventListener("afterprint", () => {
      for (const fold of closed) fold.open = false;
    });
  }

  // Paper is white. The theme comes back after printing.
  function printLight() {
    const { dataset } = document.documentElement;
    let theme;
    addEventListener("beforeprint", () => {
      theme = dataset.theme;
      dataset.theme = "light";
    });
    addEventListener("afterprint", () => {
      dataset.theme = theme;
    });
  }

  // "constructor" and "__proto__" are words that every object has, also that of the search index.
  if (typeof Search !== "undefined") {
    const own = { __proto__: null, hasOwnProperty: Object.prototype.hasOwnProperty };
    Object.setPrototypeOf(Search._index.terms, own);
    Object.setPrototypeOf(Search._index.titleterms, own);
    // Excerpts are fetched, which a page from the disk may not.
    if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  const pictures = {
    // scripts, and what they fill
    "search.js": "div.live[data-model], div.hero, div.own, div.turn",
    "live.js": "div.live[data-model], div.turn",
    "turn.js": "div.turn",
    "field.js": "div.hero, div.own",
    "figure1.js": "div.alive",
    "hero.js": "div.hero",
    "film.js": "div.film",
    "playground.js": "div.playground",
    "bleu.js": "div.bleu",
  };

  document.addEventListener("DOMContentLoaded", async () => {
    printLight();
    offerPages();
    markRead();
    offerExperiments();
    unfold();
    addEventListener("hashchange", unfold);
    document.addEventListener("click", ({ target }) => {
      if (target.closest?.("a[href*='#']")) setTimeout(unfold);
    });
    makeReachable();
    markPlace();
    for (const [script, filled] of Object.entries(pictures)) {
      if (document.querySelector(filled)) load(script, false);
    }
    document.querySelectorAll("div.claims-index").forEach(filter);
    const charts = [...document.querySelectorAll("div.chart")];
    if (charts.length === 0) return;
    offerEnlarging(charts);
    const still = charts[0].querySelector(".still") && scrollY === 0;
    const sign = still ? await moved() : null;
    await load("vega.js");
    drawAll(charts, sign === "beforeprint");
  });
})();
