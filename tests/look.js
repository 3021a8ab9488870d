// What is wrong with what a page shows, for tests/test_book.py.
() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return text.startsWith("color(") ? [255 * r, 255 * g, 255 * b, a] : [r, g, b, a];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => a * c + (1 - a) * below[i]);
  const luminance = (color) =>
    color
      .map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (one, two) => {
    const [light, dark] = [luminance(one), luminance(two)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  // The fill of a shape or letter, as it is seen: with the opacities of all around it.
  function paint(element, svg) {
    const { fill, fillOpacity } = getComputedStyle(element);
    if (fill === "none" || fill.startsWith("url")) return [0, 0, 0, 0];
    const [r, g, b, a] = rgba(fill);
    let alpha = a * fillOpacity;
    for (let e = element; e !== svg.parentElement; e = e.parentElement)
      alpha *= getComputedStyle(e).opacity;
    return [r, g, b, alpha];
  }
  function covers(shape, x, y) {
    if (!shape.isPointInFill) return true;
    return shape.isPointInFill(new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse()));
  }
  function page(element) {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a] = rgba(getComputedStyle(e).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  }

  const found = { cut: [], overlaps: [], faint: [] };
  for (const svg of all("article svg")) {
    const frame = svg.getBoundingClientRect();
    const ground = page(svg.parentElement);
    if (
      !frame.width ||
      !svg.checkVisibility({ visibilityProperty: true }) ||
      svg.closest("mjx-container")
    )
      continue;
    const texts = all("text", svg)
      .map((text) => ({
        text,
        box: text.getBoundingClientRect(),
        color: paint(text.querySelector("textPath") ?? text, svg),
      }))
      .filter(
        ({ text, box, color }) =>
          text.textContent.trim() &&
          box.width &&
          color[3] > 0.1 &&
          text.checkVisibility({ visibilityProperty: true }),
      );
    const shapes = all("path, rect, circle, ellipse, polygon", svg)
      .filter((shape) => !shape.closest("defs, clipPath"))
      .map((shape) => ({ shape, box: shape.getBoundingClientRect() }));
    texts.forEach(({ text, box, color }, i) => {
      const said = text.textContent;
      const { left, right, top, bottom } = box;
      if (
        Math.min(left - frame.left, frame.right - right, top - frame.top, frame.bottom - bottom) <
        -2
      )
        found.cut.push(said);
      const [x, y] = [(left + right) / 2, (top + bottom) / 2];
      let below = ground;
      for (const { shape, box: b } of shapes) {
        if (b.left > x || b.right < x || b.top > y || b.bottom < y) continue;
        if (text.compareDocumentPosition(shape) & 4) continue; // after it, so above it
        const fill = paint(shape, svg);
        if (fill[3] > 0.02 && covers(shape, x, y)) below = over(fill, below);
      }
      const contrast = ratio(over(color, below), below);
      if (contrast < 4.5) found.faint.push(`${said}: ${contrast.toFixed(2)}`);
      const upright = (t) => {
        const { b, a } = t.getScreenCTM();
        return Math.abs(a * b) < 0.01;
      };
      for (const { text: other, box: o } of texts.slice(i + 1)) {
        const across = Math.min(right, o.right) - Math.max(left, o.left);
        const down = Math.min(bottom, o.bottom) - Math.max(top, o.top);
        if (across > 2 && down > 3 && upright(text) && upright(other))
          found.overlaps.push(`${said} / ${other.textContent}`);
      }
    });
  }
  // Of each kind of what the keyboard reaches, the first: does it look otherwise once it has the focus?
  const look = (element) => {
    const {
      outlineStyle,
      outlineWidth,
      boxShadow,
      borderColor,
      backgroundColor,
      textDecorationLine,
    } = getComputedStyle(element);
    return [
      outlineStyle !== "none" && parseFloat(outlineWidth) >= 1,
      boxShadow,
      borderColor,
      backgroundColor,
      textDecorationLine,
    ].join();
  };
  const kinds = new Map();
  for (const element of all("a[href], button, input, select, summary, [tabindex='0']")) {
    const kind = `${element.localName}.${element.getAttribute("class") ?? ""}`;
    if (element.tabIndex >= 0 && element.checkVisibility() && !kinds.has(kind))
      kinds.set(kind, element);
  }
  document.activeElement.blur();
  const unfocused = [...kinds]
    .filter(([, element]) => {
      const before = look(element);
      element.focus({ preventScroll: true });
      return document.activeElement === element && look(element) === before;
    })
    .map(([kind]) => kind);

  const { documentElement } = document;
  return {
    ...found,
    unfocused,
    charts: all("div.chart").length,
    undrawn: all("div.chart:not(.drawn)").length,
    formulas: all(".math").length,
    set: all(".math:has(mjx-container)").length,
    begun: all("div.math > div").filter((box) => {
      const formula = box.firstElementChild?.getBoundingClientRect();
      return formula?.width && formula.left < box.getBoundingClientRect().left - 2;
    }).length,
    broken: all("mjx-merror, [data-mjx-error]").length,
    overflow: documentElement.scrollWidth - innerWidth,
    theme: documentElement.dataset.theme,
  };
};
