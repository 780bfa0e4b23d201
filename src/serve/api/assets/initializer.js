window.ui = SwaggerUIBundle({
  url: "/api-doc/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
