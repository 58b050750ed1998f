// searchOperations replaces Swagger UI's filter, which compares only tags. It keeps the operations whose method, path,
// summary or tag contains the text. The operations are Immutable.js collections.
const searchOperations = () => ({
  fn: {
    opsFilter: (tags, text) => {
      const wanted = text.toLowerCase();
      const matches = (tag, operation) =>
        [tag, operation.get("method"), operation.get("path"), operation.getIn(["operation", "summary"])]
          .some((field) => (field || "").toLowerCase().includes(wanted));
      return tags
        .map((group, tag) => group.update("operations", (all) => all.filter((operation) => matches(tag, operation))))
        .filter((group) => group.get("operations").size > 0);
    },
  },
});

// The URL is relative to this page, so that it also works below a path of a reverse proxy. YAML keeps the order of the
// operations; JSON does not.
SwaggerUIBundle({
  url: new URL("../openapi.yaml", location.href).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  persistAuthorization: true, // in the browser's local storage, until Logout
  plugins: [searchOperations],
  onComplete: () => {
    document.querySelector(".operation-filter-input").placeholder = "Filter by path, summary or tag"; // the default says "tag" only
  },
  validatorUrl: null, // no badge from another host
});
