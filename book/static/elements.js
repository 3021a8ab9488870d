// What the pictures of this book are made of.
(() => {
  const range = (n) => [...Array(n).keys()];

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function shape(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // The Tab key reaches one button of a box; arrows go to the others, and turn no page.
  function rove(box) {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    box.addEventListener("keydown", (event) => {
      const all = [...box.querySelectorAll("button:not(.unwritten)")], { key } = event;
      const ends = { Home: 0, End: all.length - 1 };
      if (!(key in step || key in ends)) return;
      event.preventDefault();
      event.stopPropagation();
      all.at(ends[key] ?? (all.indexOf(event.target) + step[key]) % all.length).focus();
    });
    box.addEventListener("focusin", ({ target }) => {
      for (const each of box.querySelectorAll("button")) each.tabIndex = each === target ? 0 : -1;
    });
  }

  window.elements = { range, make, shape, rove };
})();
