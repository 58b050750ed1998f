// Relative to this page, so that it also works below a path of a reverse proxy. YAML and not JSON,
// because it keeps the order of the operations.
SwaggerUIBundle({
  url: new URL("../openapi.yaml", location.href).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null, // no badge from another host
});
