// Requests beyond GET /list: program -> [{ name, method, path, headers, body }].
export const requests = {};
