// A reader's own parts of the Transformer, in a worker that the page can stop. Before it in the
// worker's text: MicroPython as `loadMicroPython`, elements.js, search.js and transformer.js.
(() => {
  const { START, END, PAD, UNK, Token } = window.search;
  const MOST = 50; // pieces more than the source has
  const LETTERS = 2000; // that are kept of what is printed

  // What the page's Python offers to the translator. `yours` has the reader's functions.
  const PYTHON = `
import json
import math

checks = {"__name__": "by_hand", "__file__": "by_hand"}
exec(compile(checks_text, "by_hand", "exec"), checks)
checks["load"](numbers_text)
yours = {"__name__": "yours", "math": math}

def check(name, text, others):
    for other, code in json.loads(others).items():
        exec(compile(code, other, "exec"), yours)
    found = checks["check_text"](name, text, yours)
    return json.dumps([found.right, found.text, name in yours])

def own(name):
    if name not in yours:  # the book's, which calls what is the reader's
        part = checks["PARTS"][name]
        for needed in part.get("needs", ()):
            own(needed)
        exec(part["solution"], yours)
    return yours[name]

def exact(row, width):
    row = checks["plain"](row)
    if not isinstance(row, list) or len(row) != width:
        raise ValueError("expected " + str(width) + " numbers; got " + checks["shape"](row))
    return row

def attention(queries, keys, values, h, seen):
    width = len(keys[0]) // h
    cut = lambda rows, i: [row[i * width : i * width + width] for row in rows]
    heads = [(cut(queries, i), cut(keys, i), cut(values, i)) for i in range(h)]
    attend, rows = own("attention"), []
    for at, places in enumerate(seen):
        row = []
        for q, k, v in heads:
            pairs = [[x[j] for j in places] for x in (k, v)]
            row += exact(attend(q[at], pairs[0], pairs[1]), width)
        rows.append(row)
    return rows

served = {
    "attention": attention,
    "positions": lambda places, d: [exact(own("positions")(pos, d), d) for pos in places],
    "layer_norm": lambda rows, g, b: [exact(own("layer_norm")(row, g, b), len(g)) for row in rows],
    "relu": lambda rows: [exact(own("relu")(row), len(row)) for row in rows],
    "mask": lambda n: [[bool(x) for x in exact(row, n)] for row in exact(own("mask")(n), n)],
    "greedy": lambda *more: own("greedy")(step, *more),
    "beam": lambda *more: own("beam")(step, *more),
}

def step(ids):
    return json.loads(ask(json.dumps(checks["plain"](ids))))

def serve(name, given):
    return json.dumps(checks["plain"](served[name](*json.loads(given))))
`;

  const listed = (rows) => rows.map((row) => [...row]);
  const end = (steps) => {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
    }
  };

  let printed = "";
  let python = null;

  // Calls a function of the reader's with plain values. Python's nan is no JSON.
  function call(name, ...given) {
    self.postMessage({ kind: "alive" });
    const text = python.globals.get("serve")(name, JSON.stringify(given));
    return JSON.parse(text.replace(/-?\b(nan|inf)\b/g, "null"), (_, value) => value ?? Number.NaN);
  }
  const flat = (rows) => Float32Array.from(rows.flat());

  // A translator that computes some of its parts, the names in `own`, in Python.
  class Yours extends window.Transformer {
    own = new Set();
    asked = 0;

    embed(ids, positions) {
      if (!this.own.has("positions")) return super.embed(ids, positions);
      const root = Math.sqrt(this.d_model);
      const waves = flat(call("positions", positions, this.d_model));
      return waves.map((wave, i) => {
        const [row, column] = [Math.floor(i / this.d_model), i % this.d_model];
        return this.table.data[ids[row] * this.d_model + column] * root + wave;
      });
    }

    addNorm(name, x, y) {
      if (!this.own.has("layer_norm")) return super.addNorm(name, x, y);
      const parts = ["weight", "bias"].map((w) => [...this.tensors[`${name}.norm.${w}`].data]);
      return flat(call("layer_norm", this.rows(x.map((number, i) => number + y[i])), ...parts));
    }

    feedForward(name, x) {
      if (!this.own.has("relu")) return super.feedForward(name, x);
      const inner = this.linear(`${name}.w_1`, x);
      const width = inner.length / (x.length / this.d_model);
      return this.linear(`${name}.w_2`, flat(call("relu", this.rows(inner, width))));
    }

    attention(name, x, seen, touch) {
      if (!this.own.has("attention")) return super.attention(name, x, seen, touch);
      const queries = this.rows(this.linear(`${name}.w_q`, x));
      const all = [...new Set(queries.flatMap((_, i) => seen(i)))];
      const places = queries.map((_, i) => seen(i).map((pair) => all.indexOf(pair)));
      const [keys, values] = ["key", "value"].map((of) => listed(all.map((pair) => pair[of])));
      const y = flat(call("attention", queries, keys, values, this.h, places));
      return { output: this.linear(`${name}.w_o`, y), weights: queries };
    }

    // The last rows of the mask are those of the tokens. With a wrong one a row may see what comes
    // after it; then the tokens are all that is written.
    selfAttention(name, x, tokens, n, touch) {
      if (!this.own.has("mask")) return super.selfAttention(name, x, tokens, n, touch);
      for (const [i, pair] of this.keysAndValues(name, x).entries()) tokens[i].pairs.push(pair);
      const pairs = tokens.at(-1).path.map((token) => token.pairs[n]);
      const rows = this.seen.slice(-tokens.length);
      const seen = (i) => pairs.filter((_, j) => rows[i][j]);
      return this.attention(name, x, seen, touch).output;
    }

    rows(x, width = this.d_model) {
      return Array.from({ length: x.length / width }, (_, i) => [
        ...x.subarray(i * width, (i + 1) * width),
      ]);
    }

    // Log-probabilities (vocab) of what follows some ids.
    after(ids, memory) {
      const vocab = this.table.shape[0];
      const strange = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocab));
      if (strange !== undefined || ids.length === 0) throw new Error("step got no list of ids");
      if (++this.asked > 400) throw new Error("step was called 400 times: the loop does not stop");
      const all = this.own.has("mask") && !this.causal; // every row may change with a new piece
      this.roots ??= new Map();
      if (!this.roots.has(ids[0])) this.roots.set(ids[0], new Token(ids[0]));
      let token = all ? new Token(ids[0]) : this.roots.get(ids[0]);
      for (const id of ids.slice(1)) token = token.follow(id, 0);
      const rows = this.decode(all ? token.path : this.unknown(token), memory);
      const row = rows.at(-1);
      for (const id of [START, PAD, UNK]) row[id] = -Infinity;
      return row;
    }

    // Log-probabilities after tokens, each of which comes after those of its path.
    decode(tokens, memory) {
      if (this.own.has("mask")) this.seen = call("mask", tokens.at(-1).path.length);
      for (const token of tokens) {
        token.known = true;
        for (const kept of ["pairs", "self", "cross"]) token[kept] = [];
      }
      return super.decode(tokens, memory);
    }

    // The end of a path that the cache lacks, at least the last token.
    unknown({ path }) {
      const from = path.findIndex(({ known }) => !known);
      return path.slice(from < 0 ? -1 : from);
    }

    translate(ids, search) {
      const { memory } = end(this.encode(ids));
      [this.asked, this.roots] = [0, null];
      const step = (said) => this.after(said, memory);
      const most = ids.length + MOST;
      if (this.own.has(search)) {
        const finite = (x) => (x === -Infinity ? -1e9 : Number(x.toPrecision(9)));
        python.globals.set("ask", (text) => {
          self.postMessage({ kind: "alive" });
          return JSON.stringify(Array.from(step(JSON.parse(text)), finite));
        });
        const more = search === "beam" ? [4, 0.6] : [];
        const found = call(search, START, END, most, ...more);
        return Array.isArray(found) ? found : [found];
      }
      if (search === "beam") return end(this.search(ids)).hypotheses[0].token.ids;
      const said = [START];
      while (said.at(-1) !== END && said.length <= most) {
        const row = step(said);
        said.push(row.indexOf(Math.max(...row)));
      }
      return said.slice(1);
    }
  }

  async function check({ wasm, checks, numbers, part, code, others }) {
    // In WebKit, a worker of a page from the disk can fetch nothing, not even a Blob.
    const headers = { "Content-Type": "application/wasm" };
    self.fetch = async () => new Response(wasm, { headers });
    const stdout = (line) => {
      if (printed.length < LETTERS) printed += `${line.slice(0, LETTERS)}\n`;
    };
    const load = await self.loadMicroPython;
    python = await load({ url: "wasm", stdout, stderr: stdout, linebuffer: true });
    python.globals.set("checks_text", checks);
    python.globals.set("numbers_text", numbers);
    python.runPython(PYTHON);
    self.postMessage({ kind: "alive" }); // the limit is for the reader's code
    const found = python.globals.get("check")(part, code, JSON.stringify(others));
    const [right, text, runs] = JSON.parse(found);
    return { kind: "check", right, text, runs, printed };
  }

  let yours = null;
  function translate({ config, bytes, ids, own, causal, search }) {
    yours ??= new Yours(config, bytes);
    yours.causal = causal; // as the reader's mask is, unless it is wrong
    yours.own = new Set();
    const expected = yours.translate(ids, search);
    yours.own = new Set(own);
    if (yours.own.has("softmax")) yours.own.add("attention"); // which calls it
    return { kind: "translate", ids: yours.translate(ids, search), expected };
  }

  const answers = { check, translate };
  self.onmessage = async ({ data }) => {
    try {
      self.postMessage(await answers[data.kind](data));
    } catch (error) {
      const rows = `${error.message}`.trim().split("\n");
      const line = rows.findLast((row) => row.includes('"yours"'))?.match(/line \d+/)?.[0];
      self.postMessage({ kind: "failed", text: rows.at(-1).slice(0, 300), line });
    }
  };
})();
