// Draws the charts of a page, in the colors of the theme, and draws them again when it changes.
(() => {
  const here = document.currentScript.src;

  const dark = () => document.documentElement.dataset.theme === "dark";

  function colors() {
    const text = dark() ? "#e4e4e7" : "#27272a";
    const lines = dark() ? "#52525b" : "#d4d4d8";
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

  // A narrow chart gets a narrow legend, and a title in several lines.
  function fitPhone(spec, width) {
    const narrow = (part) => {
      for (const [key, value] of Object.entries(part ?? {})) {
        if (key === "legend" && value) value.columns = 1;
        if (typeof value === "object" && key !== "datasets") narrow(value);
      }
    };
    narrow(spec);
    const title = typeof spec.title === "string" ? { text: spec.title } : spec.title;
    if (typeof title?.text !== "string") return;
    const lines = [""];
    for (const word of title.text.split(" ")) {
      const line = `${lines.at(-1)} ${word}`.trim();
      if (line.length * 11 > width) lines.push(word);
      else lines[lines.length - 1] = line;
    }
    spec.title = { ...title, text: lines };
  }

  // A finger drags a part of the chart: it does not scroll the page, and is seen where it is.
  function letDrag(svg) {
    svg.style.touchAction = "none";
    svg.addEventListener("pointerdown", (event) => event.target.releasePointerCapture(event.pointerId));
  }

  // Loads a script, by its place beside this one, once.
  const scripts = {};
  const load = (path) => (scripts[path] ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    const onerror = () => {
      delete scripts[path];
      reject(new Error(`expected a script at ${script.src}`));
    };
    Object.assign(script, { src: new URL(path, here), onload: resolve, onerror });
    document.head.append(script);
  }));
  window.loadScript = load;

  // What a chart shows: from the page, or for a large chart from a file that is loaded now.
  async function specOf(chart) {
    const name = chart.dataset.spec;
    if (!name) return JSON.parse(chart.querySelector("script").textContent);
    if (!window.chartSpecs?.[name]) await load(`../charts/${name}.js`);
    return structuredClone(window.chartSpecs[name]);
  }

  async function drawNow(chart) {
    const spec = await specOf(chart);
    if (chart.clientWidth < 500) fitPhone(spec, chart.clientWidth);
    chart.canvas ??= chart.appendChild(document.createElement("div"));
    const options = {
      config: colors(),
      renderer: "svg",
      ast: true,  // expressions are interpreted: the content policy forbids to compile them
      actions: { export: true, source: false, compiled: false, editor: false },
    };
    await vegaEmbed(chart.canvas, spec, options);
    chart.querySelector("summary")?.setAttribute("aria-label", "Save this chart");
    if (JSON.stringify(spec).includes("> pointermove")) letDrag(chart.querySelector("svg"));
  }

  // One drawing of a chart after the other; it is `drawn` when none is under way.
  function draw(chart) {
    chart.classList.remove("drawn");
    const drawing = Promise.resolve(chart.drawing)
      .then(() => drawNow(chart))
      .then(() => { if (chart.drawing === drawing) chart.classList.add("drawn"); })
      .catch((error) => console.error("chart:", error));
    chart.drawing = drawing;
  }

  function drawAll(charts) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          seen.unobserve(entry.target);
          draw(entry.target);
        }
      }
    }, { rootMargin: "600px" });
    charts.forEach((chart) => seen.observe(chart));
    new MutationObserver(() => charts.forEach((chart) => chart.drawing && draw(chart)))
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const shown = (chart) => !chart.hidden;
    addEventListener("beforeprint", () => {
      charts.filter(shown).forEach((chart) => chart.drawing || draw(chart));
    });
  }

  // Of the charts of a choice, the one that is chosen is shown; the others wait undrawn.
  function offer(choice) {
    const control = choice.querySelector("select, input");
    const charts = [...choice.querySelectorAll("div.chart")];
    const show = () => {
      const chosen = control.selectedIndex ?? Number(control.value);
      charts.forEach((chart, i) => { chart.hidden = i !== chosen; });
      if (!control.dataset.names) return;
      const name = JSON.parse(control.dataset.names)[chosen]; // of a slider
      control.nextElementSibling.textContent = name;
      control.setAttribute("aria-valuetext", name);
    };
    control.addEventListener("input", show);
    show();
  }

  // The index of claims: a control each for section and verdict; the address may set them.
  function filter(index) {
    const rows = [...index.querySelectorAll("tbody tr")];
    const asked = new URLSearchParams(location.search);
    const controls = document.createElement("p");
    controls.className = "controls";
    const selects = ["section", "verdict"].map((name) => {
      const options = [...new Set(rows.map((row) => row.dataset[name]))];
      const label = controls.appendChild(document.createElement("label"));
      const select = document.createElement("select");
      select.name = name;
      select.append(new Option("all", ""), ...options.map((value) => new Option(value)));
      if (options.includes(asked.get(name))) select.value = asked.get(name);
      label.append(`${name} `, select);
      select.addEventListener("change", show);
      return select;
    });
    const count = controls.appendChild(document.createElement("output"));
    function show() {
      const fits = (row, { name, value }) => !value || row.dataset[name] === value;
      rows.forEach((row) => { row.hidden = !selects.every((select) => fits(row, select)); });
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
    }
    index.prepend(controls);
    show();
  }

  // What scrolls can be scrolled with keys, which then turn no page; every button has a name.
  function makeReachable() {
    for (const box of document.querySelectorAll("article table, article pre, div.math > div")) {
      if (box.scrollWidth <= box.clientWidth) continue;
      box.tabIndex = 0;
      box.onkeydown = (event) => { if (event.key.startsWith("Arrow")) event.stopPropagation(); };
    }
    for (const toggle of document.querySelectorAll(".bd-sidebar-primary details > summary")) {
      const chapter = toggle.closest("li").querySelector("a").textContent.trim();
      toggle.setAttribute("aria-label", `parts of ${chapter}`);
    }
  }

  // The theme binds the first button for the menu and the first for the contents, which stand in a
  // header that it hides: every other button passes its click on to them.
  function bindToggles() {
    for (const kind of ["primary", "secondary"]) {
      const [bound, ...others] = document.querySelectorAll(`.${kind}-toggle`);
      for (const toggle of others) toggle.addEventListener("click", () => bound.click());
    }
  }

  // What a link leads to may be folded away.
  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target?.closest("details:not([open])");
    if (!fold) return;
    fold.open = true;
    target.scrollIntoView();
  }

  // Paper is white. The theme comes back after printing.
  function printLight() {
    const { dataset } = document.documentElement;
    let theme;
    addEventListener("beforeprint", () => { theme = dataset.theme; dataset.theme = "light"; });
    addEventListener("afterprint", () => { dataset.theme = theme; });
  }

  // "constructor" and "__proto__" are words that every object has, also that of the search index.
  if (typeof Search !== "undefined") {
    const own = { __proto__: null, hasOwnProperty: Object.prototype.hasOwnProperty };
    Object.setPrototypeOf(Search._index.terms, own);
    Object.setPrototypeOf(Search._index.titleterms, own);
    // Excerpts are fetched, which a page from the disk may not.
    if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  document.addEventListener("DOMContentLoaded", async () => {
    printLight();
    bindToggles();
    unfold();
    addEventListener("hashchange", unfold);
    makeReachable();
    addEventListener("resize", makeReachable);
    if (document.querySelector("div.live[data-model]")) load("live.js");
    if (document.querySelector("div.alive")) load("figure1.js");
    if (document.querySelector("div.hero")) load("hero.js");
    document.querySelectorAll("div.claims-index").forEach(filter);
    const charts = [...document.querySelectorAll("div.chart")];
    if (charts.length === 0) return;
    document.querySelectorAll("div.choice").forEach(offer);
    await load("vega.js");
    drawAll(charts);
  });
})();
