// A kind of box switched off in all layers of a translator: the table of section 3, for the reader's
// own sentence.
window.switched = (() => {
  const { range } = window.elements;

  // For each row of the table what happens to the rows of numbers; the first leaves all as they are.
  function changes({ N, N_decoder }) {
    const clear = (rows) => {
      for (const row of rows) row.fill(0);
    };
    const off = (stack, layers, box) =>
      Object.fromEntries(range(layers).map((i) => [`${stack}.layers.${i}.${box}`, clear]));
    let kept; // the embeddings before their positions are added
    const keep = (rows) => {
      kept = rows.map((row) => row.slice());
    };
    const restore = (rows) => {
      for (const [i, row] of rows.entries()) row.set(kept[i]);
    };
    return [
      {},
      { "src_embed.0": keep, src_embed: restore, "tgt_embed.0": keep, tgt_embed: restore },
      off("encoder", N, "self_attn"),
      off("decoder", N_decoder, "self_attn"),
      off("decoder", N_decoder, "src_attn"),
      off("encoder", N, "feed_forward"),
      off("decoder", N_decoder, "feed_forward"),
    ];
  }

  const shorten = (text) => text.replace(/\.{4,}/g, "…");

  async function translate({ transformer, decode, walk }, ids, touch, isLast) {
    const found = await walk(transformer.search(ids, { touch }), isLast);
    return found && shorten(decode(found.hypotheses[0].token.ids));
  }

  function fill(form) {
    const rows = form.closest("section").querySelectorAll("tbody tr");
    const cells = [...rows].map(({ cells: [, cell] }) => cell);
    const first = cells.map(({ innerHTML }) => innerHTML);
    const { megabytes, model: name, sentences } = form.dataset;
    const about = window.live.loads(megabytes);
    const { input, note, to } = window.live.asking(form, "Translate", about, run);
    let latest = 0;

    async function run() {
      const turn = ++latest;
      const isLast = () => turn === latest;
      const { value } = input;
      if (window.live.BLANK.test(value) || value === JSON.parse(sentences)[0]) {
        cells.forEach((cell, i) => {
          cell.innerHTML = first[i];
          cell.removeAttribute("lang");
        });
        note.textContent = about;
        return;
      }
      try {
        note.textContent = "Loading …";
        const model = await window.liveModel(name);
        if (!isLast()) return;
        const { ids } = model.encode(value);
        for (const cell of cells) cell.textContent = "…";
        for (const [i, touch] of changes(model.transformer).entries()) {
          note.textContent = `Translating, ${i + 1} of ${cells.length} …`;
          const text = await translate(model, ids, touch, isLast);
          if (text === null) return;
          Object.assign(cells[i], { textContent: text, lang: to });
        }
        note.textContent = "The table above shows the translations of this sentence.";
      } catch (error) {
        if (isLast()) note.textContent = `This did not work: ${error.message}`;
      }
    }
  }

  for (const form of document.querySelectorAll("div.live[data-show=switched]")) fill(form);
  return { changes, translate };
})();
