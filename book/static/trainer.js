// A small encoder of the paper that learns on a page, with the operations of `derivatives.js`: tasks,
// model, loss, updates. It is one function for the same reason.
window.makeTrainer = ({ Tape, part, flip }) => {
  const SYMBOLS = "0123456789+ ";
  const LONGEST = 16; // symbols of a text
  const [BETA1, BETA2, TINY] = [0.9, 0.98, 1e-9]; // Adam's, by section 5.3
  const DEFAULTS = {
    ...{ task: "reverse", length: 8, seed: 1, batch: 16, d_model: 32, d_ff: 64, heads: 2 },
    ...{ layers: 2, positions: "sinusoids", scaled: true, norm: "post", residual: true },
    ...{ rises: true, warmup: 100, factor: 1, smoothing: 0 },
  };

  // The answers to a text of digits, each as long as the text.
  const TASKS = {
    copy: (text) => text,
    reverse: (text) => [...text].reverse().join(""),
    sort: (text) => [...text].sort().join(""),
    add: (text) => `${text.split("+").reduce((a, b) => +a + +b, 0)}`.padStart(text.length),
  };

  // Random numbers from 0 to 1 that depend on the seed alone (mulberry32).
  function randomNumbers(seed) {
    let state = seed;
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let bits = Math.imul(state ^ (state >>> 15), 1 | state);
      bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
      return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  // -------------------------------------------------------------------------------- the model

  class Trainer {
    constructor(settings, Numbers = Float32Array) {
      this.settings = { ...DEFAULTS, ...settings };
      Object.assign(this, { Numbers, updates: 0, weights: {}, moments: {} });
      const { d_model: d, d_ff, layers, norm, seed, positions } = this.settings;
      const [random, { matrix }] = [randomNumbers(seed), new Tape(Numbers)];
      this.random = randomNumbers(seed + 1e6); // for texts: the same for every model
      const normal = () =>
        Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
      const put = (name, rows, columns, draw) => {
        const made = matrix(rows, columns);
        for (const i of made.data.keys()) made.data[i] = draw(i);
        this.weights[name] = made;
      };
      // As the package begins: Xavier's uniform numbers, those of W_V smaller.
      const map = (name, outs, ins, gain = 1) => {
        const most = gain * Math.sqrt(6 / (ins + outs));
        put(`${name}.weight`, outs, ins, () => most * (2 * random() - 1));
      };
      const row = (name, size, number) => put(name, 1, size, () => number);
      put("lut.weight", SYMBOLS.length, d, () => normal() / Math.sqrt(d));
      const norms = norm === "pre" ? ["norm"] : [];
      for (let n = 0; n < layers; n++) {
        const layer = `layers.${n}`;
        for (const w of ["w_q", "w_k", "w_o"]) map(`${layer}.self_attn.${w}`, d, d);
        map(`${layer}.self_attn.w_v`, d, d, 1 / 4);
        map(`${layer}.feed_forward.w_1`, d_ff, d);
        map(`${layer}.feed_forward.w_2`, d, d_ff);
        row(`${layer}.feed_forward.w_1.bias`, d_ff, 0);
        row(`${layer}.feed_forward.w_2.bias`, d, 0);
        norms.push(`${layer}.sublayer.0.norm`, `${layer}.sublayer.1.norm`);
      }
      for (const name of norms) {
        row(`${name}.weight`, d, 1);
        row(`${name}.bias`, d, 0);
      }
      if (positions === "learned") put("pe", LONGEST, d, normal);
      this.waves = matrix(LONGEST, d); // section 3.5
      for (const at of positions === "none" ? [] : this.waves.data.keys()) {
        const angle = Math.floor(at / d) / 10000 ** (((at % d) - (at % 2)) / d);
        this.waves.data[at] = at % 2 ? Math.cos(angle) : Math.sin(angle);
      }
    }

    linear(name, x) {
      return this.tape.linear(x, this.weights[`${name}.weight`], this.weights[`${name}.bias`]);
    }
    layerNorm(name, x) {
      return this.tape.layerNorm(x, this.weights[`${name}.weight`], this.weights[`${name}.bias`]);
    }

    // Section 3.1: LayerNorm(x + Sublayer(x)), or later models' x + Sublayer(LayerNorm(x)).
    sublayer(name, x, sublayer) {
      const { norm, residual } = this.settings;
      const y = sublayer(norm === "pre" ? this.layerNorm(name, x) : x);
      const sum = residual ? this.tape.add(x, y) : y;
      return norm === "pre" ? sum : this.layerNorm(name, sum);
    }

    // Section 3.2, for texts of n symbols.
    attention(name, x, n) {
      const { tape } = this;
      const { heads, scaled, d_model: d } = this.settings;
      const d_k = d / heads;
      const [q, k, v] = ["w_q", "w_k", "w_v"].map((w) => this.linear(`${name}.${w}`, x));
      const [scores, output] = [tape.matrix(x.rows * heads, n), tape.matrix(x.rows, d)];
      const each = (visit) => {
        for (let i = 0; i < scores.rows / n; i++) {
          const at = Math.floor(i / heads) * n * d + (i % heads) * d_k;
          visit(
            (of) => part(of, i * n * n, n, n),
            (of) => part(of, at, n, d_k),
          );
        }
      };
      each((square, head) => tape.product(square(scores), head(q), flip(head(k))));
      const weights = tape.softmax(scores, scaled ? 1 / Math.sqrt(d_k) : 1);
      each((square, head) => tape.product(head(output), square(weights), head(v)));
      this.seen.push(weights.data);
      return this.linear(`${name}.w_o`, output);
    }

    // From texts of one length to a row of logits per symbol, the answers, and what each layer's
    // attention sees, (text, head, query, key).
    run(texts) {
      const { d_model, layers, norm } = this.settings;
      const n = texts[0].length;
      Object.assign(this, { tape: new Tape(this.Numbers), seen: [] });
      const ids = Array.from(texts.join(""), (symbol) => SYMBOLS.indexOf(symbol));
      const places = this.tape.look(
        this.weights.pe ?? this.waves,
        ids.map((_, i) => i % n),
      );
      let x = this.tape.add(
        this.tape.look(this.weights["lut.weight"], ids),
        places,
        Math.sqrt(d_model),
      );
      for (let i = 0; i < layers; i++) {
        const [attend, feed] = [`layers.${i}.self_attn`, `layers.${i}.feed_forward`];
        x = this.sublayer(`layers.${i}.sublayer.0.norm`, x, (x) => this.attention(attend, x, n));
        x = this.sublayer(`layers.${i}.sublayer.1.norm`, x, (x) =>
          this.linear(`${feed}.w_2`, this.tape.relu(this.linear(`${feed}.w_1`, x))),
        );
      }
      const logits = this.linear("lut", norm === "pre" ? this.layerNorm("norm", x) : x);
      const likeliest = (_, row) => {
        const scores = logits.data.subarray(row * SYMBOLS.length, (row + 1) * SYMBOLS.length);
        return SYMBOLS[scores.indexOf(Math.max(...scores))];
      };
      const said = ids.map(likeliest).join("");
      const answers = texts.map((_, i) => said.slice(i * n, (i + 1) * n));
      return { logits, answers, seen: this.seen };
    }

    // ------------------------------------------------------------------------------ training

    texts(count, random, length = this.settings.length) {
      return Array.from({ length: count }, () => {
        const text = Array.from({ length }, () => Math.floor(10 * random()));
        if (this.settings.task === "add") text[(length - 1) >> 1] = "+";
        return text.join("");
      });
    }

    // The loss of section 5.4, a mean over symbols; its derivatives are in each matrix's grad.
    differentiate(texts) {
      const { task, smoothing } = this.settings;
      const { logits, answers } = this.run(texts);
      const wanted = texts.map((text) => TASKS[task](text));
      const found = this.tape.softmax(logits, 1).data;
      this.tape.notes.pop(); // derivatives of the loss by the logits are simpler:
      let loss = 0;
      const symbols = wanted.join("");
      for (const i of found.keys()) {
        const is = symbols[Math.floor(i / SYMBOLS.length)] === SYMBOLS[i % SYMBOLS.length];
        const share = smoothing / SYMBOLS.length + (is ? 1 - smoothing : 0);
        loss -= share && (share * Math.log(found[i])) / symbols.length;
        logits.grad[i] = (found[i] - share) / symbols.length;
      }
      this.tape.backward();
      return { loss, right: answers.filter((answer, i) => answer === wanted[i]).length };
    }

    // Equation 3; a rate that does not rise begins at its peak.
    rate(step) {
      const { d_model, factor, rises, warmup } = this.settings;
      const rise = rises ? Math.min(1, step / warmup) : 1;
      return factor * d_model ** -0.5 * Math.min(step ** -0.5, rise * warmup ** -0.5);
    }

    // One update by Adam, from texts that are drawn for it.
    step() {
      const found = this.differentiate(this.texts(this.settings.batch, this.random));
      const step = ++this.updates;
      const rate = this.rate(step) / (1 - BETA1 ** step);
      for (const [name, { data, grad }] of Object.entries(this.weights)) {
        this.moments[name] ??= [0, 1].map(() => new this.Numbers(data.length));
        const [first, second] = this.moments[name];
        for (let i = 0; i < data.length; i++) {
          first[i] += (1 - BETA1) * (grad[i] - first[i]);
          second[i] += (1 - BETA2) * (grad[i] ** 2 - second[i]);
          data[i] -= (rate * first[i]) / (Math.sqrt(second[i] / (1 - BETA2 ** step)) + TINY);
        }
        grad.fill(0);
      }
      return found;
    }

    // The share of symbols that it gets right in 100 other texts.
    exam(length) {
      const texts = this.texts(100, randomNumbers(this.settings.seed + 2e6), length);
      const said = this.run(texts).answers.join("");
      const wanted = texts.map((text) => TASKS[this.settings.task](text)).join("");
      return [...said].filter((symbol, i) => symbol === wanted[i]).length / wanted.length;
    }
  }

  return { Trainer, TASKS, DEFAULTS, LONGEST };
};
