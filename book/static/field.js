// A field for the reader's own sentence. The model is loaded once the field has the focus, and then
// answers whatever is typed.
window.Field = (() => {
  const { make, sentenceForm } = window.elements;

  return class Field {
    // The element names the model; say shows a message. answer(english, load, isLast) shows what
    // becomes of a sentence, unless another one has been typed meanwhile.
    constructor({ dataset }, value, say, answer) {
      Object.assign(this, { dataset, say, answer, turn: 0 });
      const quiet = { lang: "en", autocomplete: "off", spellcheck: false, maxLength: 300 };
      this.input = make("input", { type: "text", value, ...quiet });
      this.input.onfocus = () => this.load().catch((error) => this.complain(error));
      this.input.oninput = () => this.take(this.input.value);
      this.element = sentenceForm("English", this.input, "Translate", this.input.oninput);
      this.element.className = "field";
    }

    complain({ message }) {
      this.say(`This did not work: ${message}`);
    }

    load() {
      this.model ??= this.fetch().catch((cause) => {
        this.model = null; // so that it may be asked for again
        throw new Error("the model could not be loaded; perhaps you are offline.", { cause });
      });
      return this.model;
    }
    async fetch() {
      this.say("Loading the model. It runs on this page; nothing is sent.");
      await window.loadScript("live.js");
      const model = await window.liveModel(this.dataset.model);
      this.say("The model is loaded. Type an English sentence.");
      return model;
    }

    async take(english) {
      const mine = ++this.turn; // an older answer sees that it is not the last, and ends
      const isLast = () => mine === this.turn;
      if (this.input.value !== english) this.input.value = english;
      try {
        await this.answer(english, () => this.load(), isLast);
      } catch (error) {
        if (isLast()) this.complain(error);
      }
    }
  };
})();
