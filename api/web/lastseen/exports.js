export { connect, Socket }
