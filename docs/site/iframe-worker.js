// Browsers start no workers for pages that are opened as files, and the search of the theme is one. Its script runs in a hidden
// frame instead, which has the names that it expects of a worker. Pages from a server use real workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.inner = new Promise((ready) => {
        const begin = () => {
          const frame = document.createElement("iframe");
          frame.hidden = true;
          document.body.appendChild(frame);
          const inner = frame.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = frame.contentDocument.createElement("script");
          script.src = new URL(url, location).href;
          script.onload = () => ready(inner);
          frame.contentDocument.body.appendChild(script);
        };
        document.body ? begin() : addEventListener("DOMContentLoaded", begin);
      });
    }

    postMessage(data) {
      this.inner.then((inner) => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
