// The search of section 6.1, which the model on the page and the reader as its decoder share.
window.search = (() => {
  const [START, END, PAD, UNK] = [0, 1, 2, 3];

  // A token of an output. Those of all hypotheses form a tree: each knows the one before it, and
  // those that have been tried after it. Layer by layer it keeps its key and value, which are the
  // decoder's cache, and where it looked; or the state of a recurrent decoder.
  class Token {
    constructor(id, before = null, logProb = 0) {
      Object.assign(this, { id, before, logProb, children: new Map() });
      Object.assign(this, { pairs: [], states: [], self: [], cross: [] });
      this.path = [...(before?.path ?? []), this]; // from the start symbol on
      this.next = null; // once they are known: log-probabilities by id, as a Map or an array
    }
    get length() {
      return this.path.length - 1;
    }
    get ended() {
      return this.id === END;
    }
    get ids() {
      return this.path.slice(1).map(({ id }) => id);
    }
    follow(id, logProb) {
      const total = Math.fround(this.logProb + logProb);
      if (!this.children.has(id)) this.children.set(id, new Token(id, this, total));
      return this.children.get(id);
    }
  }

  const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;
  const score = (token, alpha) => token.logProb / lengthPenalty(token.length, alpha);

  // steps: the hypotheses that are kept after each step, the most probable first. A beam of 1 is
  // greedy search.
  class Beam {
    constructor(root, { beam = 4, alpha = 0.6, limit = Infinity, nBest = beam } = {}) {
      Object.assign(this, { beam, alpha, limit, nBest, steps: [[root]] });
    }
    get open() {
      return this.steps.at(-1).filter(({ ended }) => !ended);
    }
    // The best score first.
    get complete() {
      const by = (one, two) => score(two, this.alpha) - score(one, this.alpha);
      return this.steps
        .flat()
        .filter(({ ended }) => ended)
        .sort(by);
    }

    // Whether an open hypothesis may still become one of the n best.
    canWin() {
      const { alpha, limit, nBest, complete } = this;
      const [first] = this.open;
      if (!first || complete.length < nBest) return Boolean(first);
      const largest = Math.max(lengthPenalty(first.length + 1, alpha), lengthPenalty(limit, alpha));
      return first.logProb / largest > score(complete[nBest - 1], alpha);
    }

    // The most probable of all one-token continuations, as many as there are places. Each open
    // hypothesis knows its `next`.
    extend() {
      const places = this.beam - this.complete.length;
      const best = [];
      for (const token of this.open) {
        for (const [id, logProb] of token.next.entries()) {
          const total = Math.fround(token.logProb + logProb);
          if (total <= (best[places - 1]?.total ?? -Infinity)) continue;
          best.push({ total, token, id, logProb });
          best.sort((one, two) => two.total - one.total).splice(places);
        }
      }
      this.steps.push(best.map(({ token, id, logProb }) => token.follow(id, logProb)));
    }
  }

  return { START, END, PAD, UNK, Token, Beam, lengthPenalty, score };
})();
