// A parser on the page: the line that it writes for the reader's sentence, and the tree that the line
// describes. Nothing keeps the line to a tree, so its mistakes are drawn too.
window.parse = (() => {
  const { make, shape, wide, sentenceForm, dataOf } = window.elements;
  const SEARCH = { beam: 4, alpha: 0.3, maxExtra: 300 }; // the last two are the paper's
  const [LETTER, LEVEL] = [8, 40]; // pixels: width of a letter, height of a level
  const WORD =
    /\p{L}+(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|[\p{L}\p{N}]+(?:[.,]\p{N}+)*|\S/giu;

  // The words of an English sentence; punctuation and clitics are words of their own.
  const split = (text) => text.match(WORD) ?? [];

  // The tree that a line describes, its words, and whether its brackets match. A closing bracket
  // without an open phrase of its label has no effect, and the end closes all that is open.
  function read(line) {
    const top = { label: "TOP", children: [] };
    const [open, words] = [[top], []];
    let whole = true;
    for (const token of line.split(" ").filter(Boolean)) {
      const [mark, label] = [token[0], token.slice(1)];
      if (mark === "↓" && label) {
        const phrase = { label, children: [] };
        open.at(-1).children.push(phrase);
        open.push(phrase);
      } else if (mark === "↑" && label) {
        const at = open.map((each) => each.label).lastIndexOf(label);
        whole &&= at > 0 && at === open.length - 1;
        if (at > 0) open.splice(at);
      } else if (mark === "→" && label) {
        words.push({ tag: label, word: "" });
        open.at(-1).children.push(words.at(-1));
      } else if (words.length) words.at(-1).word += token;
    }
    whole &&= open.length === 1 && top.children.length === 1;
    return { tree: top.children.length === 1 ? top.children[0] : top, words, whole };
  }

  // The written words that are left if the longest row of words that the line shares with the
  // sentence is taken out.
  function strange(words, given) {
    const best = Array.from({ length: words.length + 1 }, () => Array(given.length + 1).fill(0));
    for (let i = words.length - 1; i >= 0; i--)
      for (let j = given.length - 1; j >= 0; j--)
        best[i][j] =
          words[i].word === given[j]
            ? best[i + 1][j + 1] + 1
            : Math.max(best[i + 1][j], best[i][j + 1]);
    let j = 0;
    return words.filter(({ word }, i) => {
      while (word !== given[j] && best[i][j] > best[i + 1][j]) j++;
      if (word !== given[j]) return true;
      j++;
      return false;
    });
  }

  const height = ({ children }) => (children ? 1 + Math.max(0, ...children.map(height)) : 0);

  // Words at the bottom, a phrase above the middle of its children; words in `wrong` are marked.
  function draw(tree, wrong, told) {
    const [parts, bottom] = [[], LEVEL * (height(tree) + 1) + 2];
    let right = 0;
    const line = (x1, y1, x2, y2, more) =>
      parts.push(shape("line", { x1, y1, x2, y2, ...more, stroke: "currentColor" }));
    const text = (x, y, words, kind) => parts.push(shape("text", { x, y, class: kind }, words));
    function place(node, level) {
      const y = LEVEL * level + 16;
      if (!node.children) {
        const width = LETTER * Math.max(node.tag.length, node.word.length) + 14;
        const x = right + width / 2;
        right += width;
        line(x, y + 6, x, bottom, { "stroke-dasharray": "2 3" });
        text(x, bottom + 16, node.word, wrong.includes(node) ? "tree-wrong" : "tree-word");
        text(x, y, node.tag, "tree-tag");
        return x;
      }
      const below = node.children.map((child) => place(child, level + 1));
      if (!below.length) {
        const width = LETTER * node.label.length + 14;
        below.push(right + width / 2);
        right += width;
      }
      const middle = (below[0] + below.at(-1)) / 2;
      if (node.children.length) for (const x of below) line(middle, y + 6, x, y + LEVEL - 14);
      text(middle, y, node.label, "tree-phrase");
      return middle;
    }
    place(tree, 0);
    const size = { viewBox: `0 0 ${right} ${bottom + 26}`, width: 1.15 * right };
    const style = `max-width: 100%; min-width: ${0.9 * right}px`;
    const named = { class: "tree", role: "img", "aria-label": told };
    return shape("svg", { ...size, style, ...named }, ...parts);
  }

  // What the line is, in a sentence or two.
  function judge({ words, whole }, wrong, given) {
    const named = wrong.map(({ word }) => `“${word}”`).join(", ");
    const told = whole
      ? "The line is a tree."
      : "The brackets of this line do not match, so it is no tree.";
    if (named) return `${told} The sentence does not have ${named} there.`;
    if (words.length < given.length) return `${told} Words of the sentence are missing.`;
    return `${told} It has the words of the sentence.`;
  }

  function fill(box) {
    const { megabytes, model: name } = box.dataset;
    const data = dataOf(box);
    const more = { value: data.sentence, lang: "en", autocomplete: "off", spellcheck: false };
    const input = make("input", { type: "text", maxLength: 300, ...more });
    const note = make("p", { className: "note", ariaLive: "polite" });
    const line = make("code");
    const drawing = wide();
    Object.assign(box, { role: "group", ariaLabel: "A parser that runs on this page" });
    box.append(sentenceForm("English", input, "Parse", run), drawing, make("p", {}, line), note);
    show(data.line, split(data.sentence));
    note.textContent += ` ${window.live.loads(megabytes)}`;
    let latest = 0;

    function show(written, given) {
      const found = read(written);
      const wrong = strange(found.words, given);
      line.textContent = written;
      drawing.replaceChildren(draw(found.tree, wrong, `The tree of the line ${written}`));
      note.textContent = judge(found, wrong, given);
    }

    async function run() {
      const turn = ++latest;
      const isLast = () => turn === latest;
      const given = split(input.value);
      if (!given.length) {
        note.textContent = "Type an English sentence.";
        return;
      }
      try {
        note.textContent = "Loading …";
        const { transformer, encode, decode, walk } = await window.liveModel(name);
        if (!isLast()) return;
        note.textContent = "Parsing …";
        const { ids, cut } = encode(given.join(" "));
        const step = ({ open }) => {
          if (open?.length) line.textContent = decode(open[0].ids);
        };
        const found = await walk(transformer.search(ids, SEARCH), isLast, step);
        if (!found) return;
        show(decode(found.hypotheses[0].token.ids), given);
        if (cut) note.textContent += " Only the beginning of the sentence was read.";
      } catch (error) {
        if (isLast()) note.textContent = `This did not work: ${error.message}`;
      }
    }
  }

  for (const box of document.querySelectorAll("div.live[data-show=parse]")) fill(box);
  return { split, read, strange, judge };
})();
